// Compares training and inference steps of the detectors' backbones with values from an independent
// implementation in PyTorch (tests/reference/backbones_torch.py), in float64. A global average pool
// and a 1x1 convolution to the class scores follow the backbone. Then compares the fast operators
// with the reference on the same networks.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "common/model/families/inception_v2.h"
#include "common/model/families/mobiledet.h"
#include "common/model/families/mobilenet_edgetpu.h"
#include "common/model/families/mobilenet_v3.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/worker/model/golden_testing.h"
#include "tests/worker/model/norms.h"

namespace pushpull {
namespace {

constexpr int kClasses = 10;
constexpr int64_t kGoldenSamples = 3;
// The script adds up the same terms in another order.
constexpr double kTolerance = 1e-8;

// `add_body` takes a NetworkBuilder* and returns the node that the pool reads.
template <typename AddBody>
NetworkSpec BuildNetwork(int size, bool freeze_batch_norm, AddBody add_body) {
  NetworkBuilder builder("Backbone", {size, size, 3}, freeze_batch_norm);
  builder.network().num_classes = kClasses;
  const int body = add_body(&builder);
  const int pool = builder.AddNode("AvgPool", op::GlobalAveragePool(), {body});
  builder.AddBiased({"Logits", pool, 1, 1, kClasses}, SlimHyperparams());
  NetworkSpec network = std::move(builder).Finish();
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

template <typename T>
TestNetwork<T> MakeTestNetwork(const NetworkSpec& network, std::unique_ptr<Operators<T>> ops) {
  return TestNetwork<T>(network, *VariableLayout::Create(network.variables), std::move(ops),
                        kGoldenSamples);
}

template <typename AddBody>
void ExpectBackbone(const std::string& golden, int size, AddBody add_body) {
  TestNetwork<double> test = MakeTestNetwork(
      BuildNetwork(size, /*freeze_batch_norm=*/false, add_body), MakeReferenceOperators<double>());
  TestBatch<double> batch(test.spec.input, kClasses, kGoldenSamples);
  const UniformNumbers numbers("images");
  for (size_t i = 0; i < batch.images.size(); ++i) batch.images[i] = numbers[i];
  ExpectGolden(golden, batch.view(), kTolerance, &test);
}

void ExpectMobiledet(const std::string& golden, int size, const std::string& scope,
                     const MobiledetOptions& options) {
  ExpectBackbone(golden, size, [&](NetworkBuilder* builder) {
    return AddMobiledetBody(scope, options, MobiledetScope(/*keras=*/false), builder).c5;
  });
}

TEST(BackboneGoldenTest, MobiledetCpuMatches) {
  ExpectMobiledet("mobiledet_cpu_100_rgb40", 40, "MobileDetCPU", {MobiledetVariant::kCpu, 1.0});
}

TEST(BackboneGoldenTest, MobiledetDspMatchesAtReducedWidth) {
  ExpectMobiledet("mobiledet_dsp_075_rgb36", 36, "MobileDetDSP", {MobiledetVariant::kDsp, 0.75});
}

TEST(BackboneGoldenTest, MobiledetEdgeTpuMatches) {
  ExpectMobiledet("mobiledet_edgetpu_100_rgb40", 40, "MobileDetEdgeTPU",
                  {MobiledetVariant::kEdgeTpu, 1.0});
}

TEST(BackboneGoldenTest, MobiledetGpuMatchesAtHalfTheWidth) {
  ExpectMobiledet("mobiledet_gpu_050_rgb33", 33, "MobileDetGPU", {MobiledetVariant::kGpu, 0.5});
}

TEST(BackboneGoldenTest, MobilenetEdgetpuMatches) {
  ExpectBackbone("mobilenet_edgetpu_075_rgb40", 40, [](NetworkBuilder* builder) {
    return AddMobilenetEdgetpuBody("MobilenetEdgeTPU", {0.75}, SlimHyperparams(), builder).layer_23;
  });
}

TEST(BackboneGoldenTest, MobilenetV3WithAReducedTailMatches) {
  const auto expect = [](const std::string& golden, int size, const MobilenetV3Options& options) {
    ExpectBackbone(golden, size, [&](NetworkBuilder* builder) {
      return AddMobilenetV3Body("MobilenetV3", options, SlimHyperparams(), builder).stride_32;
    });
  };
  expect("mobilenet_v3_large_detection_100_rgb40", 40,
         {MobilenetV3Size::kLarge, 1.0, 8, /*reduced_tail=*/true});
  expect("mobilenet_v3_small_detection_075_rgb36", 36,
         {MobilenetV3Size::kSmall, 0.75, 8, /*reduced_tail=*/true});
}

TEST(BackboneGoldenTest, InceptionV2Matches) {
  ExpectBackbone("inception_v2_detection_050_rgb66", 66, [](NetworkBuilder* builder) {
    return AddInceptionV2Body("InceptionV2", {0.5}, SlimHyperparams(), builder).mixed_5c;
  });
}

// The batch norms are frozen, because batch statistics over few values magnify rounding errors.
// `tolerance` is relative to the norm of a variable's gradient. The gradient jumps where a rounding
// error moves a value across a kink of ReLU6.
template <typename AddBody>
void ExpectFastAgrees(int size, double tolerance, AddBody add_body) {
  const NetworkSpec network = BuildNetwork(size, /*freeze_batch_norm=*/true, add_body);
  ThreadPool pool(2);
  TestNetwork<float> fast = MakeTestNetwork(network, MakeFastOperators(&pool));
  TestNetwork<double> exact = MakeTestNetwork(network, MakeReferenceOperators<double>());
  const TestBatch<float> batch(network.input, kClasses, kGoldenSamples);
  TestBatch<double> exact_batch(network.input, kClasses, kGoldenSamples);
  std::copy(batch.images.begin(), batch.images.end(), exact_batch.images.begin());
  const double loss = exact.Step(exact_batch.view()).loss;
  EXPECT_NEAR(fast.Step(batch.view()).loss, loss, 1e-4 * loss);
  for (const VariableSpec& variable : network.variables) {
    const std::vector<double> expected = exact.Part(exact.gradient, variable.name);
    std::vector<double> difference = expected;
    const std::vector<float> got = fast.Part(fast.gradient, variable.name);
    for (size_t i = 0; i < got.size(); ++i) difference[i] -= got[i];
    EXPECT_LE(Norm(difference), tolerance * Norm(expected) + 1e-7) << variable.name;
  }
}

TEST(BackboneTest, FastOperatorsAgreeOnMobiledet) {
  const auto expect = [](MobiledetVariant variant, double tolerance) {
    SCOPED_TRACE(static_cast<int>(variant));
    ExpectFastAgrees(48, tolerance, [&](NetworkBuilder* builder) {
      return AddMobiledetBody("MobileDet", {variant, 0.5}, MobiledetScope(/*keras=*/false), builder)
          .c5;
    });
  };
  expect(MobiledetVariant::kCpu, 1e-3);
  expect(MobiledetVariant::kDsp, 1e-1);
  expect(MobiledetVariant::kEdgeTpu, 1e-1);
  expect(MobiledetVariant::kGpu, 1e-1);
}

TEST(BackboneTest, FastOperatorsAgreeOnMobilenetEdgetpu) {
  ExpectFastAgrees(40, 1e-1, [](NetworkBuilder* builder) {
    return AddMobilenetEdgetpuBody("MobilenetEdgeTPU", {0.5}, MobiledetScope(/*keras=*/false),
                                   builder)
        .layer_23;
  });
}

TEST(BackboneTest, FastOperatorsAgreeOnInceptionV2) {
  ExpectFastAgrees(66, 1e-3, [](NetworkBuilder* builder) {
    return AddInceptionV2Body("InceptionV2", {0.25}, InceptionScope(/*keras=*/false), builder)
        .mixed_5c;
  });
}

}  // namespace
}  // namespace pushpull
