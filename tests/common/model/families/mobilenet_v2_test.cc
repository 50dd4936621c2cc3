#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/families/depths.h"
#include "tests/common/model/families/family_testing.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kType[] = "mobilenet_v2";

TEST(MobilenetV2Test, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(CountParameters(BuildChecked(MakeClassifier(kType, 224))), 3504872);
  EXPECT_EQ(CountParameters(BuildChecked(MakeClassifier(kType, 224, 1.4f))), 6108776);
  EXPECT_EQ(CountParameters(BuildChecked(MakeClassifier(kType, 224, 0.35f))), 1677128);
}

TEST(MobilenetV2Test, ParametersDoNotDependOnTheInputSize) {
  for (const int size : {32, 33, 96, 224}) {
    EXPECT_EQ(CountParameters(BuildChecked(MakeClassifier(kType, size))), 3504872) << size;
  }
}

TEST(MobilenetV2Test, GreyInputAndHiddenLayerChangeTheCountAsExpected) {
  config::Classifier classifier = MakeClassifier(kType, 32, 1.0f, 10);
  const int64_t colour = CountParameters(BuildChecked(classifier));
  classifier.set_num_channels(1);
  EXPECT_EQ(colour - CountParameters(BuildChecked(classifier)), 3 * 3 * 2 * 32);
  classifier.set_hidden_units(512);
  EXPECT_EQ(CountParameters(BuildChecked(classifier)),
            colour - 576 - (1280 * 10 + 10) + (1280 * 512 + 512) + (512 * 10 + 10));
}

// Returns the activation that follows the hidden layer of a classifier; kNone if there is none.
ActivationFunction HiddenActivationOf(const config::Classifier& classifier,
                                      const std::string& hidden) {
  const NetworkSpec network = BuildChecked(classifier);
  for (const Node& node : network.nodes) {
    const auto* const activation = std::get_if<op::Activation>(&node.op);
    if (activation != nullptr && absl::StartsWith(node.name, hidden + "/")) {
      return activation->function;
    }
  }
  return ActivationFunction::kNone;
}

TEST(MobilenetV2Test, TheHiddenLayerHasTheActivationThatIsSetForIt) {
  const std::string hidden = "MobilenetV2/Logits/Conv2d_1b_1x1";
  config::Classifier classifier = MakeClassifier(kType, 32, 1.0f, 10);
  classifier.set_hidden_units(16);
  EXPECT_EQ(HiddenActivationOf(classifier, hidden), ActivationFunction::kRelu6);
  auto* const hyperparams = classifier.mutable_feature_extractor()->mutable_conv_hyperparams();
  hyperparams->mutable_batch_norm();
  hyperparams->set_activation(config::Hyperparams::RELU);
  EXPECT_EQ(HiddenActivationOf(classifier, hidden), ActivationFunction::kRelu);
  classifier.set_hidden_activation(config::Hyperparams::RELU_6);
  EXPECT_EQ(HiddenActivationOf(classifier, hidden), ActivationFunction::kRelu6);
  classifier.set_hidden_activation(config::Hyperparams::NONE);
  EXPECT_EQ(HiddenActivationOf(classifier, hidden), ActivationFunction::kNone);
  classifier.mutable_feature_extractor()->set_type("resnet_v1_50");
  EXPECT_EQ(HiddenActivationOf(classifier, "resnet_v1_50/hidden"), ActivationFunction::kNone);
  classifier.set_hidden_activation(config::Hyperparams::RELU);
  EXPECT_EQ(HiddenActivationOf(classifier, "resnet_v1_50/hidden"), ActivationFunction::kRelu);
}

TEST(MobilenetV2Test, SwishTakesThePlaceOfRelu6) {
  config::Classifier classifier = MakeClassifier(kType, 32, 1.0f, 10);
  classifier.set_hidden_units(16);
  const NetworkSpec relu6 = BuildChecked(classifier);
  auto* const hyperparams = classifier.mutable_feature_extractor()->mutable_conv_hyperparams();
  hyperparams->mutable_batch_norm();
  hyperparams->set_activation(config::Hyperparams::SWISH);
  const NetworkSpec swish = BuildChecked(classifier);
  EXPECT_EQ(swish.nodes.size(), relu6.nodes.size());
  // Conv, 16 expansions, 17 depthwise convolutions, Conv_1 and the hidden layer.
  EXPECT_EQ(CountActivations(relu6, ActivationFunction::kRelu6), 36);
  EXPECT_EQ(CountActivations(swish, ActivationFunction::kSwish), 36);
  EXPECT_EQ(CountActivations(swish, ActivationFunction::kRelu6), 0);
}

// The window of a convolution or depthwise convolution; null for other nodes.
const Window* WindowOf(const Node& node) {
  if (const auto* dense = std::get_if<op::Convolution>(&node.op)) return &dense->window;
  if (const auto* depthwise = std::get_if<op::DepthwiseConvolution>(&node.op)) {
    return &depthwise->window;
  }
  return nullptr;
}

// Returns the output heights of the convolutions with stride 2 and of the last one.
std::vector<int> Heights(int size) {
  const NetworkSpec network = BuildChecked(MakeClassifier(kType, size, 1.0f, 10));
  std::vector<int> heights;
  for (const Node& node : network.nodes) {
    const Window* const window = WindowOf(node);
    if (window == nullptr || (window->stride != 2 && node.name != "MobilenetV2/Conv_1")) continue;
    EXPECT_EQ(node.shape.height, node.shape.width);
    heights.push_back(node.shape.height);
  }
  return heights;
}

TEST(MobilenetV2Test, ShapesFollowCeilingDivision) {
  EXPECT_EQ(Heights(224), (std::vector<int>{112, 56, 28, 14, 7, 7}));
  EXPECT_EQ(Heights(96), (std::vector<int>{48, 24, 12, 6, 3, 3}));
  EXPECT_EQ(Heights(32), (std::vector<int>{16, 8, 4, 2, 1, 1}));
  EXPECT_EQ(Heights(33), (std::vector<int>{17, 9, 5, 3, 2, 2}));
  EXPECT_EQ(Heights(300), (std::vector<int>{150, 75, 38, 19, 10, 10}));
}

TEST(MobilenetV2Test, RectangularInputKeepsItsAspect) {
  config::Classifier classifier = MakeClassifier(kType, 64, 1.0f, 10);
  classifier.mutable_image_resizer()->mutable_fixed_shape_resizer()->set_width(96);
  const NetworkSpec network = BuildChecked(classifier);
  EXPECT_EQ(network.nodes[0].shape, (FeatureShape{32, 48, 32}));
  EXPECT_EQ(network.nodes.back().shape, (FeatureShape{1, 1, 10}));
}

TEST(SamePaddingTest, IsAsymmetricAtStrideTwoOnEvenSizes) {
  const auto padding = [](int size, int kernel, int stride) {
    const AxisPadding p = SamePadding(size, kernel, stride);
    return std::vector<int>{p.before, p.after, p.output_size};
  };
  EXPECT_EQ(padding(300, 3, 2), (std::vector<int>{0, 1, 150}));
  EXPECT_EQ(padding(75, 3, 2), (std::vector<int>{1, 1, 38}));
  EXPECT_EQ(padding(32, 3, 1), (std::vector<int>{1, 1, 32}));
  EXPECT_EQ(padding(2, 3, 2), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(padding(1, 3, 1), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(padding(7, 1, 1), (std::vector<int>{0, 0, 7}));
}

TEST(MobilenetV2Test, EveryNodeReadsThePreviousOneAndSumsReadAnEarlierOneToo) {
  for (const float width : {0.35f, 1.0f, 1.4f}) {
    const NetworkSpec network = BuildChecked(MakeClassifier(kType, 96, width, 10));
    int sums = 0;
    for (int n = 0; n < static_cast<int>(network.nodes.size()); ++n) {
      const Node& node = network.nodes[n];
      EXPECT_EQ(node.inputs[0], n - 1) << node.name;
      if (!std::holds_alternative<op::Add>(node.op)) continue;
      ++sums;
      EXPECT_LT(node.inputs[1], n - 1) << node.name;
      EXPECT_TRUE(std::holds_alternative<op::BatchNorm>(network.nodes[n - 1].op)) << node.name;
    }
    // At width 0.35, neighbouring blocks round to equal depths, but only across a stride.
    EXPECT_EQ(sums, 10) << width;
  }
}

TEST(MobilenetV2Test, VariablesCarrySlimsNamesAndShapes) {
  const NetworkSpec network = BuildChecked(MakeClassifier(kType, 32));
  const auto shape = [&](const std::string& name) { return ShapeOf(network, name); };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("MobilenetV2/Conv/weights"), (Shape{3, 3, 3, 32}));
  EXPECT_EQ(shape("MobilenetV2/Conv/BatchNorm/gamma"), (Shape{32}));
  EXPECT_EQ(shape("MobilenetV2/Conv/BatchNorm/moving_variance"), (Shape{32}));
  EXPECT_EQ(shape("MobilenetV2/expanded_conv/depthwise/depthwise_weights"), (Shape{3, 3, 32, 1}));
  EXPECT_EQ(shape("MobilenetV2/expanded_conv/project/weights"), (Shape{1, 1, 32, 16}));
  EXPECT_EQ(shape("MobilenetV2/expanded_conv/expand/weights"), Shape());
  EXPECT_EQ(shape("MobilenetV2/expanded_conv_1/expand/weights"), (Shape{1, 1, 16, 96}));
  EXPECT_EQ(shape("MobilenetV2/expanded_conv_1/depthwise/BatchNorm/beta"), (Shape{96}));
  EXPECT_EQ(shape("MobilenetV2/expanded_conv_16/project/weights"), (Shape{1, 1, 960, 320}));
  EXPECT_EQ(shape("MobilenetV2/Conv_1/weights"), (Shape{1, 1, 320, 1280}));
  EXPECT_EQ(shape("MobilenetV2/Logits/Conv2d_1c_1x1/weights"), (Shape{1, 1, 1280, 1000}));
  EXPECT_EQ(shape("MobilenetV2/Logits/Conv2d_1c_1x1/biases"), (Shape{1000}));
  // 52 convolutions with 5 variables each, and the 2 of the classifier.
  EXPECT_EQ(network.variables.size(), 52 * 5 + 2);
}

TEST(MobilenetV2Test, DefaultsAreSlimsTrainingScope) {
  const NetworkSpec network = BuildChecked(MakeClassifier(kType, 32, 1.0f, 10));
  for (const VariableSpec& variable : network.variables) {
    if (!variable.name.ends_with("weights")) continue;
    EXPECT_EQ(variable.initializer.kind, Initializer::Kind::kTruncatedNormal) << variable.name;
    EXPECT_EQ(variable.initializer.stddev, 0.09f) << variable.name;
    const bool depthwise = variable.name.ends_with("depthwise_weights");
    EXPECT_EQ(variable.l2_weight, depthwise ? 0.0f : 4e-5f) << variable.name;
  }
  int batch_norms = 0;
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    ++batch_norms;
    EXPECT_TRUE(norm.gamma != op::kNoVariable && norm.beta != op::kNoVariable && !norm.frozen);
    EXPECT_EQ(norm.decay, 0.997f);
    EXPECT_EQ(norm.epsilon, 0.001f);
  });
  EXPECT_EQ(batch_norms, 52);
}

TEST(MobilenetV2Test, ConvHyperparamsAreTakenAsWritten) {
  config::Classifier classifier = MakeClassifier(kType, 32, 1.0f, 10);
  auto* hyperparams = classifier.mutable_feature_extractor()->mutable_conv_hyperparams();
  hyperparams->mutable_batch_norm()->set_decay(0.9f);
  hyperparams->mutable_batch_norm()->set_train(false);
  hyperparams->mutable_regularizer()->mutable_l2_regularizer()->set_weight(0.5f);
  hyperparams->set_regularize_depthwise(true);
  hyperparams->mutable_initializer()->mutable_variance_scaling_initializer();
  const NetworkSpec network = BuildChecked(classifier);
  const auto variable = [&](const std::string& name) {
    const auto found =
        std::find_if(network.variables.begin(), network.variables.end(),
                     [&](const VariableSpec& v) { return v.name == "MobilenetV2/" + name; });
    return found == network.variables.end() ? VariableSpec() : *found;
  };
  for (const Node& node : network.nodes) {
    if (const auto* const activation = std::get_if<op::Activation>(&node.op)) {
      EXPECT_EQ(activation->function, ActivationFunction::kRelu) << node.name;  // the default
    }
  }
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    EXPECT_EQ(norm.gamma, op::kNoVariable);  // the field's default
    EXPECT_TRUE(norm.frozen);
  });
  EXPECT_EQ(variable("expanded_conv/depthwise/depthwise_weights").l2_weight, 0.5f);
  // Variance factor 2 over a fan-in of 16, with slim's correction of 1.3 for the truncation.
  EXPECT_FLOAT_EQ(variable("expanded_conv_1/expand/weights").initializer.stddev,
                  std::sqrt(1.3f * 2.0f / 16.0f));
  for (const VariableSpec& variable : network.variables) {
    if (variable.kind == VariableKind::kMovingStatistic) {
      EXPECT_TRUE(variable.frozen) << variable.name;
      EXPECT_EQ(variable.moving_average_decay, 0.9f);
    }
  }
}

TEST(MakeDivisibleTest, FollowsSlimsRule) {
  EXPECT_EQ(MakeDivisible(32 * 0.35, 8, 8),
            16);  // 11.2 would round to 8, which is more than 10 % less
  EXPECT_EQ(MakeDivisible(16 * 1.4, 8, 8), 24);
  EXPECT_EQ(MakeDivisible(24 * 0.5, 8, 8), 16);  // 12 lies halfway and rounds up
  EXPECT_EQ(MakeDivisible(3, 8, 8), 8);
  EXPECT_EQ(MakeDivisible(3, 8, 16), 16);
}

}  // namespace
}  // namespace pushpull
