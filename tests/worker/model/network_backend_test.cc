// Compares the fast operators with the reference through whole training and inference steps.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/each_cpu_isa.h"
#include "tests/testkit/model/test_network.h"
#include "tests/worker/model/norms.h"

namespace pushpull {
namespace {

struct BackendCase {
  const char* name;
  const char* classifier;
  int64_t samples;
  // Tolerances for the norm of the whole gradient and for the norm of each variable's gradient.
  double tolerance = 1e-4;
  double variable_tolerance = 1e-3;
};

// Batch statistics over few values magnify rounding errors, and the gradient jumps where an error
// moves a value across a kink of ReLU6. The cases with tight tolerances therefore have no kink,
// frozen statistics, or more values per channel.
constexpr char kSmooth[] =
    "feature_extractor { conv_hyperparams { activation: NONE batch_norm { scale: true } } } ";

class NetworkBackendTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(NetworkBackendTest, FastAgreesWithReference) {
  constexpr double kLossTolerance = 1e-4;
  const auto config = MakeTestConfig(GetParam().classifier);
  ThreadPool pool(2);
  TestNetwork<float> fast(config, MakeFastOperators(&pool), GetParam().samples);
  TestNetwork<double> reference(config, MakeReferenceOperators<double>(), GetParam().samples);
  const TestBatch<float> batch(fast.spec.input, 10, GetParam().samples);
  TestBatch<double> exact(fast.spec.input, 10, GetParam().samples);
  std::copy(batch.images.begin(), batch.images.end(), exact.images.begin());

  const StepResult got = fast.Step(batch.view(), 3);
  const StepResult expected = reference.Step(exact.view(), 3);
  EXPECT_NEAR(got.loss, expected.loss, kLossTolerance * expected.loss);
  EXPECT_EQ(got.correct_top1, expected.correct_top1);
  const double whole = Norm(reference.gradient);
  EXPECT_LT(NormOfDifference(fast.gradient, reference.gradient), GetParam().tolerance * whole);
  // A wrong gradient of a small variable must not be hidden by those of large variables.
  for (const VariableSpec& variable : fast.layout.variables()) {
    const std::vector<double> part = reference.Part(reference.gradient, variable.name);
    EXPECT_LE(NormOfDifference(fast.Part(fast.gradient, variable.name), part),
              GetParam().variable_tolerance * Norm(part) + 1e-7 * whole)
        << variable.name;
  }

  const auto fast_loss = fast.network->Evaluate(fast.variables, batch.view(), 10);
  const auto reference_loss = reference.network->Evaluate(reference.variables, exact.view(), 10);
  ASSERT_TRUE(fast_loss.ok() && reference_loss.ok());
  EXPECT_NEAR(fast_loss->loss, reference_loss->loss, kLossTolerance * reference_loss->loss);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkBackendTest,
    ::testing::Values(
        BackendCase{"Colour32", "", 16, 2e-2, 1e-1}, BackendCase{"Smooth32", kSmooth, 16},
        BackendCase{"OneSampleFrozen", "freeze_batchnorm: true", 1},
        BackendCase{"GreyOddSize",
                    "num_channels: 1 freeze_batchnorm: true "
                    "image_resizer { fixed_shape_resizer { height: 37 width: 33 } }",
                    7},
        BackendCase{"HiddenDropout",
                    "feature_extractor { conv_hyperparams { activation: NONE batch_norm {} } } "
                    "hidden_units: 33 dropout_keep_probability: 0.75 label_smoothing: 0.1",
                    19},
        BackendCase{"V3Frozen",
                    "freeze_batchnorm: true image_resizer { fixed_shape_resizer { height: 48 "
                    "width: 40 } } feature_extractor { type: 'mobilenet_v3_large' }",
                    4},
        BackendCase{"V3SmallFrozen",
                    "freeze_batchnorm: true feature_extractor { type: 'mobilenet_v3_small' }", 3},
        BackendCase{"ResnetFrozen",
                    "freeze_batchnorm: true feature_extractor { type: 'resnet_v1_50' }", 2},
        BackendCase{"VggDropout",
                    "image_resizer { fixed_shape_resizer { height: 70 width: 70 } } "
                    "feature_extractor { type: 'vgg_a' } dropout_keep_probability: 0.5",
                    3, 2e-2, 5e-2},
        BackendCase{"Wider64",
                    "image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
                    "feature_extractor { depth_multiplier: 0.5 conv_hyperparams { activation: NONE "
                    "batch_norm { scale: true } } }",
                    6}),
    [](const auto& info) { return info.param.name; });

// The gradient in bfloat16 points the same way as the exact one. Each of some hundred tensors on
// the way is rounded to 8 bits, and batch statistics over the 16 values of the last layers magnify
// that.
TEST(NetworkBackendTest, Bfloat16AgreesWithReference) {
  constexpr int64_t kSamples = 16;
  for (const char* classifier :
       {kSmooth, "freeze_batchnorm: true", "feature_extractor { type: 'vgg_a' }"}) {
    const auto config = MakeTestConfig(classifier);
    ThreadPool pool(2);
    TestNetwork<Bfloat16> fast(config, MakeFastOperators<Bfloat16>(&pool), kSamples);
    TestNetwork<double> reference(config, MakeReferenceOperators<double>(), kSamples);
    const TestBatch<float> batch(fast.spec.input, 10, kSamples);
    TestBatch<double> exact(fast.spec.input, 10, kSamples);
    std::copy(batch.images.begin(), batch.images.end(), exact.images.begin());

    const StepResult got = fast.Step(batch.view(), 3);
    const StepResult expected = reference.Step(exact.view(), 3);
    EXPECT_NEAR(got.loss, expected.loss, 0.02 * expected.loss);
    EXPECT_LT(NormOfDifference(fast.gradient, reference.gradient), 0.25 * Norm(reference.gradient))
        << classifier;

    ASSERT_TRUE(fast.network->Infer(fast.variables, batch.view(), 10).ok());
    ASSERT_TRUE(reference.network->Infer(reference.variables, exact.view(), 10).ok());
    const std::vector<float> outputs(fast.network->outputs()[0],
                                     fast.network->outputs()[0] + kSamples * 10);
    const std::vector<double> exact_outputs(reference.network->outputs()[0],
                                            reference.network->outputs()[0] + kSamples * 10);
    EXPECT_LT(NormOfDifference(outputs, exact_outputs), 0.05 * Norm(exact_outputs));
  }
}

// Instruction sets without fused multiply-adds, and tiles in bfloat16, round differently, which a
// step with kinks and few values per channel magnifies without bound, so they are compared in the
// smooth network only.
TEST(NetworkBackendTest, StepsDoNotDependOnTheInstructionSet) {
  for (const char* classifier : {"", kSmooth}) {
    constexpr int64_t kSamples = 16;
    const auto config = MakeTestConfig(classifier);
    ThreadPool pool(2);
    UseCpuIsa(AvailableCpuIsas().back());  // the operators below choose how they multiply by it
    TestNetwork<float> single(config, MakeFastOperators<float>(&pool), kSamples);
    TestNetwork<Bfloat16> half(config, MakeFastOperators<Bfloat16>(&pool), kSamples);
    const TestBatch<float> batch(single.spec.input, 10, kSamples);
    const CpuIsa common = BestCpuIsaWithoutTiles();
    UseCpuIsa(common);
    single.Step(batch.view());
    half.Step(batch.view());
    const std::vector<float> single_gradient = single.gradient, half_gradient = half.gradient;
    for (const CpuIsa isa : AvailableCpuIsas()) {
      UseCpuIsa(isa);
      single.Step(batch.view());
      half.Step(batch.view());
      UseCpuIsa(AvailableCpuIsas().back());
      if (RoundAlike<float>(isa, common)) {
        EXPECT_EQ(single.gradient, single_gradient) << CpuIsaName(isa);
      } else if (classifier == kSmooth) {
        const std::vector<double> best_single(single_gradient.begin(), single_gradient.end());
        EXPECT_LT(NormOfDifference(single.gradient, best_single), 1e-4 * Norm(best_single));
      }
      if (RoundAlike<Bfloat16>(isa, common)) {
        EXPECT_EQ(half.gradient, half_gradient) << CpuIsaName(isa);
      } else if (classifier == kSmooth) {
        const std::vector<double> best_half(half_gradient.begin(), half_gradient.end());
        EXPECT_LT(NormOfDifference(half.gradient, best_half), 0.1 * Norm(best_half));
      }
    }
  }
}

TEST(NetworkBackendTest, FastStepsDoNotDependOnTheNumberOfThreads) {
  const auto config = MakeTestConfig("");
  ThreadPool one(1), three(3);
  TestNetwork<float> alone(config, MakeFastOperators(&one), 6);
  TestNetwork<float> shared(config, MakeFastOperators(&three), 6);
  const TestBatch<float> batch(alone.spec.input, 10, 6);
  EXPECT_EQ(alone.Step(batch.view()).loss, shared.Step(batch.view()).loss);
  EXPECT_EQ(alone.gradient, shared.gradient);
}

}  // namespace
}  // namespace pushpull
