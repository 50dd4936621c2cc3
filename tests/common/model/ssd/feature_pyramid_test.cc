#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "common/config/validate_config.h"
#include "common/model/ssd/ssd_network.h"
#include "common/model/variable_layout.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Pair;

// The predictor and anchors of TensorFlow's sample configs, on an image of `size`.
std::string Settings(int size, const std::string& extractor, const std::string& predictor,
                     const std::string& anchors = "") {
  return absl::StrCat(
      "num_classes: 90 image_resizer { fixed_shape_resizer { height: ", size, " width: ", size,
      " } } feature_extractor { ", extractor,
      " } box_predictor { weight_shared_convolutional_box_predictor { num_layers_before_predictor: "
      "4 class_prediction_bias_init: -4.6 conv_hyperparams { activation: RELU_6 batch_norm { "
      "scale: "
      "true } } ",
      predictor,
      " } } anchor_generator { multiscale_anchor_generator { aspect_ratios: [1.0, 2.0, 0.5] ",
      anchors, " } }");
}

NetworkSpec BuildPyramid(const std::string& type, const std::string& settings) {
  const auto config = MakeSsdTestConfig(type, settings);
  const NetworkSpec network = BuildSsd(config.model().ssd());
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

std::map<std::string, std::vector<int64_t>> Shapes(const NetworkSpec& network) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const VariableSpec& variable : network.variables) {
    EXPECT_TRUE(shapes.emplace(variable.name, variable.shape).second) << variable.name;
  }
  return shapes;
}

std::vector<int> MapSizes(const NetworkSpec& network) {
  std::vector<int> sizes;
  for (const DetectionHead& head : network.detection->heads) sizes.push_back(head.height);
  return sizes;
}

std::string Problems(const std::string& type, const std::string& settings) {
  return std::string(ValidatePipelineConfig(MakeSsdTestConfig(type, settings), {})
                         .ToStatus("job.config")
                         .message());
}

TEST(FeaturePyramidTest, RetinaNetHasTheSizesOfTheSampleConfig) {
  const NetworkSpec network = BuildPyramid(
      "ssd_mobilenet_v1_fpn",
      Settings(640, "override_base_feature_extractor_hyperparams: true", "depth: 256"));
  EXPECT_THAT(MapSizes(network), ElementsAre(80, 40, 20, 10, 5));
  EXPECT_EQ(network.detection->num_anchors(), 51150);
  const auto shapes = Shapes(network);
  const std::string fpn = "FeatureExtractor/MobilenetV1/fpn/";
  EXPECT_THAT(shapes.at(fpn + "projection_1/weights"), ElementsAre(1, 1, 256, 256));
  EXPECT_THAT(shapes.at(fpn + "projection_3/biases"), ElementsAre(256));
  EXPECT_THAT(shapes.at(fpn + "smoothing_2/weights"), ElementsAre(3, 3, 256, 256));
  EXPECT_THAT(shapes.at(fpn + "bottom_up_Conv2d_15/BatchNorm/gamma"), ElementsAre(256));
  const std::string root = "WeightSharedConvolutionalBoxPredictor/";
  EXPECT_THAT(shapes.at(root + "BoxPredictionTower/conv2d_3/weights"), ElementsAre(3, 3, 256, 256));
  EXPECT_THAT(shapes.at(root + "ClassPredictionTower/conv2d_0/BatchNorm/feature_4/beta"),
              ElementsAre(256));
  EXPECT_THAT(shapes.at(root + "ClassPredictor/weights"), ElementsAre(3, 3, 256, 6 * 91));
  EXPECT_THAT(shapes.at(root + "BoxPredictor/biases"), ElementsAre(24));
  EXPECT_EQ(shapes.count(root + "ProjectionLayer/conv2d_0/weights"), 0u);
}

TEST(FeaturePyramidTest, AllMapsShareTheWeightsAndNotTheBatchNorms) {
  const NetworkSpec network = BuildPyramid("ssd_mobilenet_v1_fpn", Settings(320, "", "depth: 64"));
  std::map<std::string, int> users;
  for (const Node& node : network.nodes) {
    for (const int variable : VariablesOf(node.op)) ++users[network.variables[variable].name];
  }
  for (const auto& [name, count] : users) {
    const bool shared =
        name.rfind("WeightShared", 0) == 0 && name.find("BatchNorm") == std::string::npos;
    EXPECT_EQ(count, shared ? 5 : 1) << name;
  }
  EXPECT_EQ(users.count("WeightSharedConvolutionalBoxPredictor/ClassPredictor/biases"), 1u);
}

// Neither version of TensorFlow reads the activation of conv_hyperparams here.
TEST(FeaturePyramidTest, TowersHaveRelu6UnlessTheConfigAsksForSwish) {
  const auto activations = [](const std::string& type, config::Hyperparams::Activation activation) {
    auto config = MakeSsdTestConfig(type, Settings(64, "", "depth: 64"));
    config.mutable_model()
        ->mutable_ssd()
        ->mutable_box_predictor()
        ->mutable_weight_shared_convolutional_box_predictor()
        ->mutable_conv_hyperparams()
        ->set_activation(activation);
    const NetworkSpec network = BuildSsd(config.model().ssd());
    std::set<std::string> found;
    for (const Node& node : network.nodes) {
      const auto* const function = std::get_if<op::Activation>(&node.op);
      if (function == nullptr || node.name.rfind("WeightShared", 0) != 0) continue;
      found.insert(ActivationName(function->function));
    }
    return found;
  };
  for (const char* type : {"ssd_mobilenet_v1_fpn", "ssd_mobilenet_v1_fpn_keras"}) {
    EXPECT_THAT(activations(type, config::Hyperparams::RELU), ElementsAre("Relu6")) << type;
    EXPECT_THAT(activations(type, config::Hyperparams::NONE), ElementsAre("Relu6")) << type;
    EXPECT_THAT(activations(type, config::Hyperparams::SWISH), ElementsAre("Swish")) << type;
  }
}

TEST(FeaturePyramidTest, FpnLiteSeparatesItsConvolutions) {
  const NetworkSpec network =
      BuildPyramid("ssd_mobilenet_v2_fpn",
                   Settings(320, "use_depthwise: true fpn { additional_layer_depth: 128 }",
                            "depth: 128 share_prediction_tower: true use_depthwise: true"));
  EXPECT_THAT(MapSizes(network), ElementsAre(40, 20, 10, 5, 3));
  const auto shapes = Shapes(network);
  EXPECT_THAT(shapes.at("FeatureExtractor/MobilenetV2/Conv_1/weights"),
              ElementsAre(1, 1, 320, 256));
  const std::string fpn = "FeatureExtractor/MobilenetV2/fpn/";
  EXPECT_THAT(shapes.at(fpn + "projection_1/weights"), ElementsAre(1, 1, 32, 128));
  EXPECT_THAT(shapes.at(fpn + "projection_2/weights"), ElementsAre(1, 1, 96, 128));
  EXPECT_THAT(shapes.at(fpn + "smoothing_1/depthwise_weights"), ElementsAre(3, 3, 128, 1));
  EXPECT_THAT(shapes.at(fpn + "bottom_up_Conv2d_20/pointwise_weights"),
              ElementsAre(1, 1, 128, 128));
  const std::string root = "WeightSharedConvolutionalBoxPredictor/";
  EXPECT_THAT(shapes.at(root + "PredictionTower/conv2d_0/depthwise_weights"),
              ElementsAre(3, 3, 128, 1));
  EXPECT_THAT(shapes.at(root + "ClassPredictor/pointwise_weights"), ElementsAre(1, 1, 128, 6 * 91));
  EXPECT_EQ(shapes.count(root + "ClassPredictionTower/conv2d_0/depthwise_weights"), 0u);
}

TEST(FeaturePyramidTest, KerasNetworksAreThoseOfTensorflow2) {
  const auto lite =
      Shapes(BuildPyramid("ssd_mobilenet_v2_fpn_keras",
                          Settings(320, "use_depthwise: true fpn { additional_layer_depth: 128 }",
                                   "depth: 128 share_prediction_tower: true use_depthwise: true")));
  EXPECT_THAT(lite.at("FeatureExtractor/MobilenetV2/Conv_1/weights"), ElementsAre(1, 1, 320, 1280));
  const std::string settings =
      Settings(64, "override_base_feature_extractor_hyperparams: true", "depth: 256");
  const auto stride_of = [](const NetworkSpec& network, const std::string& name) {
    for (const Node& node : network.nodes) {
      if (node.name == name) return std::get<op::Convolution>(node.op).window.stride;
    }
    return 0;
  };
  const std::string unit = "FeatureExtractor/resnet_v1_50/block2/unit_1/bottleneck_v1";
  const NetworkSpec keras = BuildPyramid("ssd_resnet50_v1_fpn_keras", settings);
  EXPECT_EQ(stride_of(keras, unit + "/conv1"), 2);
  EXPECT_EQ(stride_of(keras, unit + "/conv2"), 1);
  EXPECT_EQ(stride_of(keras, unit + "/shortcut"), 2);
  const NetworkSpec slim = BuildPyramid("ssd_resnet50_v1_fpn", settings);
  EXPECT_EQ(stride_of(slim, unit + "/conv1"), 1);
  EXPECT_EQ(MapSizes(keras), MapSizes(slim));
}

// The activation after the sum of a unit, or "" if there is none.
std::string SumActivation(const std::string& type, const std::string& extractor) {
  const NetworkSpec network = BuildPyramid(type, Settings(64, extractor, "depth: 256"));
  for (const Node& node : network.nodes) {
    const auto* const activation = std::get_if<op::Activation>(&node.op);
    if (activation == nullptr || node.inputs[0] == Node::kImage) continue;
    if (network.nodes[node.inputs[0]].name ==
        "FeatureExtractor/resnet_v1_50/block4/unit_3/bottleneck_v1/add") {
      return std::string(ActivationName(activation->function));
    }
  }
  return "";
}

TEST(FeaturePyramidTest, TheConfigsActivationReachesTheSumsOfTensorflow2sResnet) {
  const std::string override = "override_base_feature_extractor_hyperparams: true ";
  EXPECT_EQ(SumActivation("ssd_resnet50_v1_fpn_keras", override), "Relu6");
  EXPECT_EQ(SumActivation("ssd_resnet50_v1_fpn_keras", ""), "Relu");
  EXPECT_EQ(SumActivation("ssd_resnet50_v1_fpn_keras",
                          override + "conv_hyperparams { activation: NONE }"),
            "");
  EXPECT_EQ(SumActivation("ssd_resnet50_v1_fpn", override), "Relu");
}

TEST(FeaturePyramidTest, ResnetReadsTheLastValueOfEachBlock) {
  const NetworkSpec network = BuildPyramid(
      "ssd_resnet101_v1_fpn",
      Settings(640, "override_base_feature_extractor_hyperparams: true", "depth: 256"));
  EXPECT_THAT(MapSizes(network), ElementsAre(80, 40, 20, 10, 5));
  const auto shapes = Shapes(network);
  const std::string root = "FeatureExtractor/resnet_v1_101/";
  EXPECT_THAT(shapes.at(root + "fpn/projection_1/weights"), ElementsAre(1, 1, 512, 256));
  EXPECT_THAT(shapes.at(root + "fpn/projection_3/weights"), ElementsAre(1, 1, 2048, 256));
  EXPECT_THAT(shapes.at(root + "fpn/bottom_up_block6/weights"), ElementsAre(3, 3, 256, 256));
}

// slim's initializer has 1.3 * 2 over the fan in before truncation. Keras's has 1 after it, and the
// deviation of a normal distribution is 0.8796 of what it was once it is truncated at two of them.
TEST(FeaturePyramidTest, ResnetsOwnInitializerIsThatOfItsVersion) {
  const auto deviation = [](const std::string& type) {
    for (const VariableSpec& variable :
         BuildPyramid(type, Settings(64, "", "depth: 64")).variables) {
      if (variable.name != "FeatureExtractor/resnet_v1_50/conv1/weights") continue;
      EXPECT_EQ(variable.initializer.kind, Initializer::Kind::kTruncatedNormal);
      return variable.initializer.stddev;
    }
    return 0.0f;
  };
  const double fan_in = 7 * 7 * 3;
  EXPECT_NEAR(deviation("ssd_resnet50_v1_fpn"), std::sqrt(2.6 / fan_in), 1e-6);
  EXPECT_NEAR(deviation("ssd_resnet50_v1_fpn_keras"), std::sqrt(1.0 / fan_in) / 0.87962566, 1e-6);
}

TEST(FeaturePyramidTest, OnlyKerasScalesTheFirstConvolutionOfResnet) {
  const std::string root = "FeatureExtractor/resnet_v1_50/";
  const std::string unit = root + "block1/unit_1/bottleneck_v1/conv1/weights";
  const std::string settings = Settings(64, "depth_multiplier: 0.5", "depth: 64");
  const auto slim = Shapes(BuildPyramid("ssd_resnet50_v1_fpn", settings));
  EXPECT_THAT(slim.at(root + "conv1/weights"), ElementsAre(7, 7, 3, 64));
  EXPECT_THAT(slim.at(unit), ElementsAre(1, 1, 64, 32));
  const auto keras = Shapes(BuildPyramid("ssd_resnet50_v1_fpn_keras", settings));
  EXPECT_THAT(keras.at(root + "conv1/weights"), ElementsAre(7, 7, 3, 32));
  EXPECT_THAT(keras.at(unit), ElementsAre(1, 1, 32, 32));
}

TEST(FeaturePyramidTest, PoolingPyramidHasNoWeightsAfterTheBackbone) {
  const NetworkSpec network = BuildPyramid(
      "ssd_mobilenet_v1_ppn",
      "num_classes: 90 box_predictor { weight_shared_convolutional_box_predictor { depth: 512 "
      "num_layers_before_predictor: 1 kernel_size: 1 share_prediction_tower: true conv_hyperparams "
      "{ batch_norm {} } } } anchor_generator { ssd_anchor_generator { "
      "reduce_boxes_in_lowest_layer: false } }");
  EXPECT_THAT(MapSizes(network), ElementsAre(19, 10, 5, 3, 2, 1));
  std::set<std::string> scopes;
  for (const VariableSpec& variable : network.variables) {
    scopes.insert(variable.name.substr(0, variable.name.find('/', variable.name.find('/') + 1)));
  }
  EXPECT_THAT(scopes, ElementsAre("FeatureExtractor/MobilenetV1",
                                  "WeightSharedConvolutionalBoxPredictor/BoxPredictor",
                                  "WeightSharedConvolutionalBoxPredictor/ClassPredictor",
                                  "WeightSharedConvolutionalBoxPredictor/PredictionTower"));
}

std::string MnasFpnSettings(int size, const std::string& extractor = "",
                            const std::string& fpn = "max_level: 6 additional_layer_depth: 48") {
  return Settings(size, absl::StrCat(extractor, " fpn { ", fpn, " }"),
                  "depth: 64 share_prediction_tower: true use_depthwise: true",
                  "max_level: 6 scales_per_octave: 3");
}

TEST(FeaturePyramidTest, MnasFpnHasTheSizesOfTheSampleConfig) {
  const NetworkSpec network = BuildPyramid("ssd_mobilenet_v2_mnasfpn", MnasFpnSettings(320));
  EXPECT_THAT(MapSizes(network), ElementsAre(40, 20, 10, 5));
  const auto shapes = Shapes(network);
  int64_t parameters = 0;
  for (const VariableSpec& variable : network.variables) {
    if (variable.kind == VariableKind::kMovingStatistic) continue;
    int64_t elements = 1;
    for (const int64_t side : variable.shape) elements *= side;
    parameters += elements;
  }
  // TensorFlow's sample config says 2.5 million.
  EXPECT_NEAR(parameters, 2.5e6, 0.05e6);
  EXPECT_EQ(shapes.count("FeatureExtractor/MobilenetV2/Conv_1/weights"), 0u);
  const std::string root = "FeatureExtractor/MnasFPN/";
  EXPECT_THAT(shapes.at(root + "C6_Conv1x1/weights"), ElementsAre(1, 1, 320, 48));
  // The first cell reads the depths of the backbone, the others those of cells.
  const std::string c5 = "/block_0/input_1/Conv1x1/weights";
  EXPECT_THAT(shapes.at(root + "cell_0" + c5), ElementsAre(1, 1, 320, 256));
  EXPECT_THAT(shapes.at(root + "cell_3" + c5), ElementsAre(1, 1, 48, 256));
  EXPECT_THAT(shapes.at(root + "cell_2/block_3/SepConv/depthwise_weights"),
              ElementsAre(5, 5, 128, 1));
  EXPECT_THAT(shapes.at(root + "cell_2/block_4/SepConv/pointwise_weights"),
              ElementsAre(1, 1, 96, 48));
}

TEST(FeaturePyramidTest, MnasFpnKeepsTheMinimumDepth) {
  const auto shapes = Shapes(
      BuildPyramid("ssd_mobilenet_v2_mnasfpn", MnasFpnSettings(64, "depth_multiplier: 0.1")));
  const std::string root = "FeatureExtractor/MnasFPN/";
  EXPECT_THAT(shapes.at(root + "C6_Conv1x1/weights"), ElementsAre(1, 1, 32, 16));
  EXPECT_THAT(shapes.at(root + "cell_1/block_1/SepConv/pointwise_weights"),
              ElementsAre(1, 1, 16, 16));
}

// Only level 6 of the first cell has the depth of what is added to it.
TEST(FeaturePyramidTest, MnasFpnAddsTheInputsOfACellWhereDepthsAgree) {
  std::map<std::string, int> sums;
  for (const Node& node : BuildPyramid("ssd_mobilenet_v2_mnasfpn", MnasFpnSettings(64)).nodes) {
    const size_t at = node.name.find("/residual_");
    if (at != std::string::npos) ++sums[node.name.substr(at - 6, 6)];
  }
  EXPECT_THAT(sums, ElementsAre(Pair("cell_0", 1), Pair("cell_1", 4), Pair("cell_2", 4),
                                Pair("cell_3", 4)));
}

TEST(FeaturePyramidTest, MnasFpnHasHyperparamsOfItsOwn) {
  const NetworkSpec network = BuildPyramid("ssd_mobilenet_v2_mnasfpn", MnasFpnSettings(64));
  std::map<std::string, VariableSpec> variables;
  for (const VariableSpec& variable : network.variables) variables[variable.name] = variable;
  const auto weights = [&](const std::string& name) {
    return variables.at("FeatureExtractor/" + name);
  };
  const VariableSpec backbone = weights("MobilenetV2/expanded_conv_3/depthwise/depthwise_weights");
  EXPECT_EQ(backbone.initializer.kind, Initializer::Kind::kTruncatedNormal);
  EXPECT_FLOAT_EQ(backbone.initializer.stddev, 0.536f);
  EXPECT_FLOAT_EQ(backbone.l2_weight, 4e-5f);
  const VariableSpec pointwise = weights("MnasFPN/cell_1/block_2/SepConv/pointwise_weights");
  EXPECT_FLOAT_EQ(pointwise.initializer.stddev, 0.536f);
  EXPECT_FLOAT_EQ(pointwise.l2_weight, 1e-4f);
  const VariableSpec dense = weights("MnasFPN/cell_1/block_2/input_0/Conv1x1/weights");
  // He: the deviation before truncation, which is 0.88 of it after.
  EXPECT_NEAR(dense.initializer.stddev, std::sqrt(2.0 / 48.0) / 0.87962566, 1e-6);
  EXPECT_FLOAT_EQ(dense.l2_weight, 1e-4f);
  EXPECT_FLOAT_EQ(weights("MnasFPN/C6_Conv1x1/weights").l2_weight, 0.0f);
  for (const Node& node : network.nodes) {
    const auto* norm = std::get_if<op::BatchNorm>(&node.op);
    if (norm == nullptr || node.name.rfind("FeatureExtractor", 0) != 0) continue;
    EXPECT_FLOAT_EQ(norm->decay, 0.99f) << node.name;
    EXPECT_FLOAT_EQ(norm->epsilon, 0.01f) << node.name;
  }
}

TEST(FeaturePyramidTest, MnasFpnWarnsOfFieldsWithoutEffectAndRefusesOthers) {
  const std::string type = "ssd_mobilenet_v2_mnasfpn";
  const ConfigReport report = ValidatePipelineConfig(
      MakeSsdTestConfig(type,
                        MnasFpnSettings(320, "override_base_feature_extractor_hyperparams: true")),
      {});
  EXPECT_THAT(report.warnings,
              IsSupersetOf({"model.ssd.feature_extractor.conv_hyperparams has no effect with "
                            "\"ssd_mobilenet_v2_mnasfpn\": its layers have hyperparameters of "
                            "their own",
                            "model.ssd.feature_extractor.override_base_feature_extractor_"
                            "hyperparams has no effect with \"ssd_mobilenet_v2_mnasfpn\": its "
                            "layers have hyperparameters of their own"}));
  EXPECT_THAT(Problems(type, MnasFpnSettings(320)), Not(HasSubstr("feature_extractor")));
  EXPECT_THAT(Problems(type, MnasFpnSettings(320, "", "max_level: 7")),
              HasSubstr("feature_extractor.fpn.min_level, max_level: expected 3, 6, the levels of "
                        "the cells, got 3, 7"));
  EXPECT_THAT(Problems(type, MnasFpnSettings(352)),
              HasSubstr("a side of 352 pixels; make both sides of the image multiples of 64"));
  EXPECT_THAT(Problems(type, MnasFpnSettings(320, "", "max_level: 6 additional_layer_depth: 0")),
              HasSubstr("fpn.additional_layer_depth"));
  EXPECT_THAT(
      Problems(type, MnasFpnSettings(320, "use_depthwise: true")),
      HasSubstr("use_depthwise: expected false, because the cells are separable in any case"));
  EXPECT_THAT(Problems(type, MnasFpnSettings(320, "use_explicit_padding: true")),
              HasSubstr("use_explicit_padding: expected false for this type"));
}

TEST(FeaturePyramidTest, APoolingPyramidWarnsOfHyperparamsWithoutEffect) {
  const auto warnings = [](const std::string& fields) {
    return absl::StrJoin(
        ValidatePipelineConfig(MakeSsdTestConfig("ssd_mobilenet_v1_ppn", fields), {}).warnings,
        "\n");
  };
  const std::string words = "feature_extractor.conv_hyperparams has no effect";
  EXPECT_THAT(warnings(""), HasSubstr(words));
  EXPECT_THAT(warnings("feature_extractor { override_base_feature_extractor_hyperparams: true }"),
              Not(HasSubstr(words)));
}

// The test's configs have a batch norm, which is removed here.
TEST(FeaturePyramidTest, HyperparamsWithoutEffectNeedNoBatchNorm) {
  const auto problems = [](config::TrainEvalPipelineConfig config) {
    config.mutable_model()
        ->mutable_ssd()
        ->mutable_feature_extractor()
        ->mutable_conv_hyperparams()
        ->clear_batch_norm();
    return std::string(ValidatePipelineConfig(config, {}).ToStatus("job.config").message());
  };
  const std::string words = "feature_extractor.conv_hyperparams";
  EXPECT_THAT(problems(MakeSsdTestConfig("ssd_mobilenet_v2_mnasfpn", MnasFpnSettings(320))),
              Not(HasSubstr(words)));
  EXPECT_THAT(problems(MakeSsdTestConfig("ssd_mobilenet_v1_ppn", "")), Not(HasSubstr(words)));
  EXPECT_THAT(problems(MakeSsdTestConfig(
                  "ssd_mobilenet_v1_ppn",
                  "feature_extractor { override_base_feature_extractor_hyperparams: true }")),
              HasSubstr(words + ".batch_norm"));
}

TEST(FeaturePyramidTest, AWeightSharedPredictorProjectsMapsOfSeveralDepths) {
  const NetworkSpec network = BuildPyramid(
      "ssd_mobilenet_v1",
      "box_predictor { weight_shared_convolutional_box_predictor { kernel_size: 1 "
      "conv_hyperparams { batch_norm {} } } } anchor_generator { ssd_anchor_generator { "
      "reduce_boxes_in_lowest_layer: false } }");
  // The maps have 512, 1024, 512, 256, 256 and 128 channels.
  const auto shapes = Shapes(network);
  const std::string root = "WeightSharedConvolutionalBoxPredictor/";
  EXPECT_THAT(shapes.at(root + "ProjectionLayer/conv2d_0/weights"), ElementsAre(1, 1, 512, 512));
  EXPECT_THAT(shapes.at(root + "ProjectionLayer/conv2d_5/weights"), ElementsAre(1, 1, 128, 512));
  EXPECT_THAT(shapes.at(root + "BoxPredictor/weights"), ElementsAre(1, 1, 512, 24));
}

TEST(FeaturePyramidTest, EmbeddedSsdHasFiveMaps) {
  const NetworkSpec network = BuildPyramid(
      "embedded_ssd_mobilenet_v1",
      "image_resizer { fixed_shape_resizer { height: 256 width: 256 } } anchor_generator { "
      "ssd_anchor_generator { num_layers: 5 } }");
  EXPECT_THAT(MapSizes(network), ElementsAre(16, 8, 4, 2, 1));
  EXPECT_EQ(Shapes(network).count("FeatureExtractor/MobilenetV1/"
                                  "Conv2d_13_pointwise_2_Conv2d_4_2x2_s2_256/weights"),
            1u);
}

TEST(FeaturePyramidTest, ExplicitPaddingDoesNotDependOnTheSize) {
  const NetworkSpec network =
      BuildPyramid("ssd_mobilenet_v2", "feature_extractor { use_explicit_padding: true }");
  for (const Node& node : network.nodes) {
    if (node.name != "FeatureExtractor/MobilenetV2/Conv") continue;
    // SAME would pad 300 pixels by one row below.
    EXPECT_EQ(std::get<op::Convolution>(node.op).window.padding, (SpatialPadding{1, 1, 1, 1}));
  }
  EXPECT_THAT(MapSizes(network), ElementsAre(19, 10, 5, 3, 2, 1));
}

// A row of the table of types and a row of the table of extractors belong together.
TEST(FeaturePyramidTest, EveryTypeBuildsANetwork) {
  for (const absl::string_view name : SsdTypeNames()) {
    SCOPED_TRACE(std::string(name));
    const NetworkSpec network = BuildPyramid(std::string(name), SsdTestSettings(name, 128));
    EXPECT_GE(network.detection->heads.size(), 4u);
    EXPECT_EQ(network.detection->heads[0].height, HasLevels(FindSsdType(name)->maps) ? 16 : 8);
  }
}

TEST(FeaturePyramidTest, RefusesExplicitPaddingWhereTensorflowDoes) {
  const std::string problem = "use_explicit_padding: expected false for this type, got true";
  const std::string padding = "use_explicit_padding: true";
  const std::string extractor = "feature_extractor { " + padding + " }";
  for (const char* type : {"ssd_mobiledet_cpu", "ssd_mobiledet_gpu"}) {
    EXPECT_THAT(Problems(type, extractor), HasSubstr(problem)) << type;
  }
  for (const char* type : {"ssd_resnet50_v1_fpn", "ssd_resnet152_v1_fpn_keras"}) {
    EXPECT_THAT(Problems(type, Settings(320, padding, "depth: 64")), HasSubstr(problem)) << type;
  }
  for (const char* type : {"ssd_mobilenet_v1", "ssd_mobilenet_v2_keras", "ssd_inception_v2"}) {
    EXPECT_THAT(Problems(type, extractor), Not(HasSubstr("use_explicit_padding"))) << type;
  }
  EXPECT_THAT(Problems("ssd_mobilenet_v2_fpn", Settings(320, padding, "depth: 64")),
              Not(HasSubstr("use_explicit_padding")));
}

TEST(FeaturePyramidTest, MobiledetKeepsItsHyperparams) {
  EXPECT_THAT(Problems("ssd_mobiledet_cpu",
                       "feature_extractor { override_base_feature_extractor_hyperparams: true }"),
              HasSubstr("this backbone has hyperparameters of its own"));
}

TEST(FeaturePyramidTest, InceptionNeedsTheConfigsHyperparams) {
  const std::string problem =
      "true, because this backbone has no hyperparameters of its own, got false";
  EXPECT_THAT(Problems("ssd_inception_v2", ""), HasSubstr(problem));
  EXPECT_THAT(Problems("ssd_inception_v2",
                       "feature_extractor { override_base_feature_extractor_hyperparams: true }"),
              Not(HasSubstr("feature_extractor")));
}

TEST(FeaturePyramidTest, OnlyTheTypesOfTensorflow2EndInKeras) {
  EXPECT_TRUE(FindSsdType("ssd_resnet152_v1_fpn_keras").has_value());
  for (const char* type : {"ssd_inception_v2_keras", "ssd_mobiledet_cpu_keras", "_keras",
                           "ssd_mobilenet_v2_keras_keras", "ssd_inception_v3"}) {
    EXPECT_FALSE(FindSsdType(type).has_value()) << type;
  }
}

TEST(FeaturePyramidTest, RefusesPyramidsThatDoNotFit) {
  const std::string shared = "depth: 64";
  const auto problems = [&](const std::string& extractor) {
    return Problems("ssd_mobilenet_v2_fpn", Settings(320, extractor, shared));
  };
  EXPECT_THAT(problems("fpn { min_level: 6 }"),
              HasSubstr("feature_extractor.fpn.min_level: expected a number from 2 to 5, got 6"));
  EXPECT_THAT(
      problems("fpn { max_level: 4 }"),
      AllOf(HasSubstr("fpn.max_level: expected 5 to 10, because all levels of the backbone "
                      "are read"),
            HasSubstr("got 4; set it, and max_level of multiscale_anchor_generator, to 5")));
  EXPECT_THAT(problems("fpn { max_level: 1 }"),
              HasSubstr("fpn.max_level: expected a number from 5 to 10, got 1"));
  EXPECT_THAT(problems("fpn { max_level: 6 }"),
              HasSubstr("those of model.ssd.feature_extractor.fpn (3, 6), got 3, 7"));
  EXPECT_THAT(problems("fpn { additional_layer_depth: 0 }"), HasSubstr("additional_layer_depth"));
  EXPECT_THAT(problems("pad_to_multiple: 128"),
              HasSubstr("make both sides of the image multiples of 128"));
  EXPECT_THAT(Problems("ssd_mobilenet_v2_fpn", Settings(300, "", shared)),
              HasSubstr("make both sides of the image multiples of 32"));
  EXPECT_THAT(Problems("ssd_mobilenet_v2", Settings(320, "fpn {}", shared)),
              HasSubstr("model.ssd.feature_extractor.fpn: expected none for this type"));
  EXPECT_THAT(Problems("ssd_mobilenet_v2", Settings(320, "", shared)),
              HasSubstr("expected a feature extractor with a feature pyramid, got "
                        "ssd_mobilenet_v2; use ssd_anchor_generator"));
}

// Such levels were the widths of shifts, which have no defined result, and overflowed.
TEST(FeaturePyramidTest, LevelsFarOutsideGiveOnlyTheirOwnProblems) {
  const std::string levels = "min_level: -2147483648 max_level: 2147483647";
  const std::string field = "model.ssd.feature_extractor.fpn.";
  for (const char* more : {"", " num_layers: 6"}) {
    std::vector<std::string> found;
    for (const ConfigProblem& problem :
         ValidatePipelineConfig(
             MakeSsdTestConfig(
                 "ssd_mobilenet_v2_fpn",
                 Settings(320, absl::StrCat("fpn { ", levels, " }", more), "depth: 64", levels)),
             {})
             .problems) {
      if (absl::StartsWith(problem.field, "model.")) found.push_back(problem.field);
    }
    EXPECT_EQ(found, std::vector<std::string>({field + "min_level", field + "max_level"}));
  }
}

TEST(FeaturePyramidTest, RefusesFieldsOfOtherMaps) {
  const auto pyramid = [](const std::string& num_layers) {
    return Problems("ssd_mobilenet_v2_fpn", Settings(320, num_layers, "depth: 64"));
  };
  EXPECT_THAT(pyramid("num_layers: 6"),
              HasSubstr("feature_extractor.num_layers: expected the number of feature maps that "
                        "\"ssd_mobilenet_v2_fpn\" has here (5), got 6"));
  EXPECT_THAT(pyramid("num_layers: 5"), Not(HasSubstr("num_layers")));
  EXPECT_THAT(Problems("ssd_mobilenet_v1_ppn", "feature_extractor { num_layers: 4 }"),
              HasSubstr("\"ssd_mobilenet_v1_ppn\" has here (6), got 4"));
  EXPECT_THAT(Problems("ssd_mobilenet_v1_ppn", "feature_extractor { use_depthwise: true }"),
              HasSubstr("feature_extractor.use_depthwise: expected false, because the maps are "
                        "max pools"));
  EXPECT_THAT(Problems("ssd_mobilenet_v1", "feature_extractor { use_depthwise: true }"),
              Not(HasSubstr("use_depthwise")));
}

TEST(FeaturePyramidTest, RefusesAWeightSharedPredictorThatDoesNotFit) {
  EXPECT_THAT(
      Problems("ssd_mobilenet_v2_fpn", Settings(320, "", "")),
      HasSubstr("weight_shared_convolutional_box_predictor.depth: expected a number from 1"));
  EXPECT_THAT(Problems("ssd_mobilenet_v1",
                       "box_predictor { "
                       "weight_shared_convolutional_box_predictor { } }"),
              HasSubstr("reduce_boxes_in_lowest_layer: expected false with "
                        "weight_shared_convolutional_box_predictor"));
}

}  // namespace
}  // namespace pushpull
