// The fast operators against the reference in double, on every network that a config can name.
//
// A gradient jumps where a rounding error moves a value across a kink of ReLU or to another maximum
// of a pool. So the networks have smooth functions in place of these: the same layers, shapes and
// connections, and errors that come from single precision alone.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "common/config/model_types.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/full_run.h"
#include "tests/testkit/model/test_network.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

// Batch statistics over very few values magnify rounding errors; the coarsest maps have one pixel.
constexpr int64_t kSamples = 8;
constexpr int kClasses = 10;
constexpr const char* kDeepForms[] = {"101", "152", "vgg_16", "vgg_19"};
constexpr double kLossTolerance = 1e-4;
// Relative to the norm of the gradient, and to that of its part for one variable.
constexpr double kGradientTolerance = 1e-3;
constexpr double kVariableTolerance = 1e-2;
// The mean of what a linear layer makes of normalized values is zero, but for rounding errors.
constexpr double kRounding = 2e-5;

void MakeSmooth(Operator* op) {
  if (auto* activation = std::get_if<op::Activation>(op)) {
    activation->function = activation->function == ActivationFunction::kHardSigmoid
                               ? ActivationFunction::kSigmoid
                               : ActivationFunction::kSwish;
  } else if (const auto* pool = std::get_if<op::MaxPool>(op)) {
    *op = op::AveragePool{pool->window};
  }
}

void FreezeBatchNorms(NetworkSpec* spec) {
  for (Node& node : spec->nodes) {
    auto* const norm = std::get_if<op::BatchNorm>(&node.op);
    if (norm == nullptr) continue;
    norm->frozen = true;
    spec->variables[norm->moving_mean].frozen = true;
    spec->variables[norm->moving_variance].frozen = true;
  }
}

config::TrainEvalPipelineConfig ConfigOf(const std::string& type) {
  if (FindClassifierType(type).has_value()) {
    return MakeTestConfig(
        absl::StrCat("image_resizer { fixed_shape_resizer { height: 64 width: 64 "
                     "} } feature_extractor { depth_multiplier: 0.25 type: '",
                     type, "' }"));
  }
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(type, SsdTestSettings(type, 128));
  config::Ssd* const ssd = config.mutable_model()->mutable_ssd();
  ssd->mutable_feature_extractor()->set_depth_multiplier(0.25f);
  // A rounding error must not choose other examples.
  ssd->mutable_loss()->clear_hard_example_miner();
  return config;
}

class SinglePrecisionTest : public ::testing::TestWithParam<std::string> {};

// The deep forms of ResNet and VGG have more of the layers of the shallow ones and take seconds
// each.
TEST_P(SinglePrecisionTest, FastOperatorsAgreeWithTheReference) {
  const bool is_deep =
      std::any_of(std::begin(kDeepForms), std::end(kDeepForms),
                  [](const char* name) { return absl::StrContains(GetParam(), name); });
  if (is_deep && !IsFullRun()) GTEST_SKIP() << "runs with PUSHPULL_TEST_FULL=1";
  NetworkSpec spec = BuildNetworkSpec(ConfigOf(GetParam()).model());
  for (Node& node : spec.nodes) MakeSmooth(&node.op);
  // Each block of MobileDetCPU doubles the errors of the block before if its weights are random and
  // its statistics are those of the batch. The reference operators in single precision do the same.
  if (GetParam() == "ssd_mobiledet_cpu") FreezeBatchNorms(&spec);
  ASSERT_EQ(CheckNetwork(spec), absl::OkStatus());
  const auto layout = VariableLayout::Create(spec.variables);
  ThreadPool pool(2);
  TestNetwork<float> fast(spec, *layout, MakeFastOperators(&pool), kSamples);
  TestNetwork<double> exact(spec, *layout, MakeReferenceOperators<double>(), kSamples);
  const TestBatch<float> images(spec.input, kClasses, kSamples);
  TestBatch<double> exact_images(spec.input, kClasses, kSamples);
  std::copy(images.images.begin(), images.images.end(), exact_images.images.begin());
  ImageBatch<float> batch = images.view();
  ImageBatch<double> exact_batch = exact_images.view();
  std::vector<std::vector<LabeledBox>> boxes(kSamples);
  for (int s = 0; s < kSamples; ++s) {
    const float at = 0.05f * static_cast<float>(s);
    boxes[s] = {{{at, 0.1f, at + 0.4f, 0.45f}, s % 3, 1.0f}};
    if (s % 2 == 0) boxes[s].push_back({{0.5f, at, 0.95f, at + 0.6f}, 2, 1.0f});
  }
  const std::vector<absl::Span<const LabeledBox>> objects(boxes.begin(), boxes.end());
  batch.objects = exact_batch.objects = objects.data();

  const double loss = exact.Step(exact_batch).loss;
  EXPECT_NEAR(fast.Step(batch).loss, loss, kLossTolerance * loss);
  double all_squares = 0.0, all_errors = 0.0;
  for (const VariableSpec& variable : spec.variables) {
    const std::vector<double> expected = exact.Part(exact.gradient, variable.name);
    const std::vector<float> got = fast.Part(fast.gradient, variable.name);
    double squares = 0.0, errors = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      squares += expected[i] * expected[i];
      errors += (got[i] - expected[i]) * (got[i] - expected[i]);
    }
    EXPECT_LE(std::sqrt(errors), kVariableTolerance * std::sqrt(squares) + kRounding)
        << variable.name;
    if (variable.kind != VariableKind::kTrainable) continue;  // a statistic of the batch
    all_squares += squares;
    all_errors += errors;
  }
  EXPECT_LE(std::sqrt(all_errors), kGradientTolerance * std::sqrt(all_squares));
}

std::vector<std::string> AllTypes() {
  std::vector<std::string> types;
  for (const absl::string_view type : ClassifierTypeNames()) types.emplace_back(type);
  for (const absl::string_view type : SsdTypeNames()) types.emplace_back(type);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Networks, SinglePrecisionTest, ::testing::ValuesIn(AllTypes()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pushpull
