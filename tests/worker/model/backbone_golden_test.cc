// Compares training and inference steps of the detectors' backbones with values from an independent
// implementation in PyTorch (tests/reference/backbones_torch.py), in float64. A global average pool
// and a 1x1 convolution to the class scores follow the backbone.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/families/mobiledet.h"
#include "common/model/families/mobilenet_edgetpu.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/worker/model/golden_testing.h"

namespace pushpull {
namespace {

constexpr int kClasses = 10;
constexpr int64_t kSamples = 3;
// The script adds up the same terms in another order.
constexpr double kTolerance = 1e-8;

// `add_body` takes a NetworkBuilder* and returns the node that the pool reads.
template <typename AddBody>
void ExpectBackbone(const std::string& golden, int size, AddBody add_body) {
  NetworkBuilder builder("Backbone", {size, size, 3}, /*freeze_batch_norm=*/false);
  builder.network().num_classes = kClasses;
  const int body = add_body(&builder);
  const int pool = builder.AddNode("AvgPool", op::GlobalAveragePool(), {body});
  builder.AddBiased({"Logits", pool, 1, 1, kClasses}, SlimHyperparams());
  NetworkSpec spec = std::move(builder).Finish();
  ASSERT_EQ(CheckNetwork(spec), absl::OkStatus());
  VariableLayout layout = *VariableLayout::Create(spec.variables);
  TestNetwork<double> test(std::move(spec), std::move(layout), MakeReferenceOperators<double>(),
                           kSamples);
  TestBatch<double> batch(test.spec.input, kClasses, kSamples);
  for (size_t i = 0; i < batch.images.size(); ++i) batch.images[i] = Uniform("images", i);
  ExpectGolden(golden, batch.view(), kTolerance, &test);
}

void ExpectMobiledet(const std::string& golden, int size, const std::string& scope,
                     const MobiledetOptions& options) {
  ExpectBackbone(golden, size, [&](NetworkBuilder* builder) {
    return AddMobiledetBody(scope, options, MobiledetHyperparams(), builder).c5;
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

}  // namespace
}  // namespace pushpull
