#include "ps_server/warm_start/keras_names.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

// A source with tensors of these names, which cannot be read.
class Names final : public TensorSource {
 public:
  explicit Names(const std::set<std::string>& names) {
    for (const std::string& name : names) tensors_.push_back({name, {1}, ""});
  }
  std::string describe() const override { return "names"; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status Read(const SourceTensor&, absl::Span<float>) const override {
    return absl::UnimplementedError("only names");
  }

 private:
  std::vector<SourceTensor> tensors_;
};

std::string Name(const std::string& variable, const Names& source = Names({})) {
  return KerasName(variable, source).value_or("none");
}

TEST(KerasNamesTest, ANetworkIsKnownByItsFirstLayers) {
  EXPECT_TRUE(IsKeras(Names({"bn_Conv1/beta"})));
  EXPECT_TRUE(IsKeras(Names({"conv_dw_1_bn/beta"})));
  EXPECT_TRUE(IsKeras(Names({"expanded_conv/depthwise/BatchNorm/beta"})));
  EXPECT_TRUE(IsKeras(Names({"expanded_conv_depthwise_bn/beta"})));
  EXPECT_TRUE(IsKeras(Names({"conv1_bn/gamma", "conv1_conv/kernel"})));
  EXPECT_FALSE(IsKeras(Names({"MobilenetV2/Conv/weights"})));
  EXPECT_FALSE(IsKeras(Names({})));
}

TEST(KerasNamesTest, KerassOwnResnetHasBiasesAndIsNotRead) {
  EXPECT_FALSE(IsKeras(Names({"conv1_bn/gamma", "conv1_conv/bias", "conv1_conv/kernel"})));
  EXPECT_FALSE(IsKeras(Names({"conv1_conv/kernel"})));
}

TEST(KerasNamesTest, MobilenetV1) {
  EXPECT_EQ(Name("MobilenetV1/Conv2d_0/weights"), "conv1/kernel");
  EXPECT_EQ(Name("MobilenetV1/Conv2d_0/BatchNorm/moving_mean"), "conv1_bn/moving_mean");
  EXPECT_EQ(Name("MobilenetV1/Conv2d_3_depthwise/depthwise_weights"), "conv_dw_3/depthwise_kernel");
  EXPECT_EQ(Name("MobilenetV1/Conv2d_3_depthwise/BatchNorm/beta"), "conv_dw_3_bn/beta");
  EXPECT_EQ(Name("MobilenetV1/Conv2d_13_pointwise/weights"), "conv_pw_13/kernel");
  EXPECT_EQ(Name("MobilenetV1/Conv2d_13_other/weights"), "none");
}

TEST(KerasNamesTest, MobilenetV2) {
  EXPECT_EQ(Name("MobilenetV2/Conv/weights"), "Conv1/kernel");
  EXPECT_EQ(Name("MobilenetV2/Conv/BatchNorm/gamma"), "bn_Conv1/gamma");
  EXPECT_EQ(Name("MobilenetV2/expanded_conv/depthwise/depthwise_weights"),
            "expanded_conv_depthwise/depthwise_kernel");
  EXPECT_EQ(Name("MobilenetV2/expanded_conv/project/BatchNorm/gamma"),
            "expanded_conv_project_BN/gamma");
  EXPECT_EQ(Name("MobilenetV2/expanded_conv_16/expand/weights"), "block_16_expand/kernel");
  EXPECT_EQ(Name("MobilenetV2/Conv_1/weights"), "Conv_1/kernel");
  EXPECT_EQ(Name("MobilenetV2/Conv_1/BatchNorm/moving_variance"), "Conv_1_bn/moving_variance");
  EXPECT_EQ(Name("MobilenetV2/Logits/Conv2d_1c_1x1/biases"), "predictions/bias");
  EXPECT_EQ(Name("MobilenetV2/expanded_conv_1/other/weights"), "none");
}

TEST(KerasNamesTest, Resnet) {
  EXPECT_EQ(Name("resnet_v1_50/conv1/weights"), "conv1_conv/kernel");
  EXPECT_EQ(Name("resnet_v1_50/block1/unit_2/bottleneck_v1/conv3/weights"),
            "conv2_block2_3_conv/kernel");
  EXPECT_EQ(Name("resnet_v1_101/block3/unit_23/bottleneck_v1/conv1/BatchNorm/beta"),
            "conv4_block23_1_bn/beta");
  EXPECT_EQ(Name("resnet_v1_152/block4/unit_1/bottleneck_v1/shortcut/weights"),
            "conv5_block1_0_conv/kernel");
  EXPECT_EQ(Name("resnet_v1_50/block4/unit_1/other/conv1/weights"), "none");
}

// The scope of a detector's layers comes from the source.
TEST(KerasNamesTest, FeaturePyramids) {
  const Names source({"extractor/FeatureMaps/top_down/projection_2/kernel",
                      "extractor/FeatureMaps/top_down/smoothing_1_depthwise_conv/depthwise_kernel",
                      "extractor/bottom_up_Conv2d_20_batchnorm/gamma"});
  EXPECT_EQ(Name("MobilenetV2/fpn/projection_2/weights", source),
            "extractor/FeatureMaps/top_down/projection_2/kernel");
  EXPECT_EQ(Name("MobilenetV2/fpn/smoothing_1/depthwise_weights", source),
            "extractor/FeatureMaps/top_down/smoothing_1_depthwise_conv/depthwise_kernel");
  EXPECT_EQ(Name("MobilenetV2/fpn/bottom_up_Conv2d_20/BatchNorm/gamma", source),
            "extractor/bottom_up_Conv2d_20_batchnorm/gamma");
}

TEST(KerasNamesTest, Predictors) {
  const std::string shared = "WeightSharedConvolutionalBoxPredictor/";
  EXPECT_EQ(Name(shared + "BoxPredictor/depthwise_weights"),
            shared + "WeightSharedConvolutionalBoxHead/BoxPredictor/depthwise_kernel");
  EXPECT_EQ(Name(shared + "ClassPredictor/biases"),
            shared + "WeightSharedConvolutionalClassHead/ClassPredictor/bias");
  EXPECT_EQ(Name(shared + "PredictionTower/conv2d_0/pointwise_weights"),
            shared + "PredictionTower/conv2d_0/pointwise_kernel");
  EXPECT_EQ(Name("BoxPredictor_2/ClassPredictor/weights"),
            "BoxPredictor/ConvolutionalClassHead_2/ClassPredictor/kernel");
  EXPECT_EQ(Name("BoxPredictor_0/BoxEncodingPredictor/biases"),
            "BoxPredictor/ConvolutionalBoxHead_0/BoxEncodingPredictor/bias");
}

}  // namespace
}  // namespace pushpull
