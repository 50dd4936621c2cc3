#include "common/model/ssd/ssd_network.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "common/model/variable_layout.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

NetworkSpec Build(const std::string& type, const std::string& ssd = "") {
  const auto config = MakeSsdTestConfig(type, ssd);
  return BuildSsd(config.model().ssd());
}

std::map<std::string, VariableSpec> Variables(const NetworkSpec& network) {
  std::map<std::string, VariableSpec> result;
  for (const VariableSpec& variable : network.variables) result.emplace(variable.name, variable);
  return result;
}

// Counts the weights of convolutions and the biases of the heads.
int64_t CountWeights(const NetworkSpec& network, const std::string& prefix) {
  int64_t count = 0;
  for (const auto& [name, variable] : Variables(network)) {
    if (name.rfind(prefix, 0) != 0 || name.find("BatchNorm") != std::string::npos) continue;
    int64_t size = 1;
    for (const int64_t dimension : variable.shape) size *= dimension;
    count += size;
  }
  return count;
}

std::vector<std::vector<int>> MapShapes(const NetworkSpec& network) {
  std::vector<std::vector<int>> shapes;
  for (const DetectionHead& head : network.detection->heads) {
    const FeatureShape& in = ShapeOfInput(network, network.nodes[head.box_node].inputs[0]);
    shapes.push_back({head.height, head.width, in.channels});
  }
  return shapes;
}

using SidesAndDepths = std::vector<std::vector<int>>;

TEST(SsdMobilenetTest, V2HasThePublishedSizes) {
  const NetworkSpec network = Build("ssd_mobilenet_v2");
  // The convolutions have 2.19 million parameters in the backbone, 0.65 million in the extra layers
  // and 13.95 million in the heads.
  const int64_t backbone = CountWeights(network, "FeatureExtractor/MobilenetV2/Conv") +
                           CountWeights(network, "FeatureExtractor/MobilenetV2/expanded_conv");
  EXPECT_EQ(backbone, 2189760);
  EXPECT_NEAR(CountWeights(network, "FeatureExtractor/MobilenetV2/layer_19") / 1e6, 0.65, 0.005);
  EXPECT_NEAR(CountWeights(network, "BoxPredictor_") / 1e6, 13.95, 0.01);
  EXPECT_EQ(
      MapShapes(network),
      (SidesAndDepths{
          {19, 19, 576}, {10, 10, 1280}, {5, 5, 512}, {3, 3, 256}, {2, 2, 256}, {1, 1, 128}}));
  EXPECT_EQ(network.detection->num_anchors(), 1917);
}

TEST(SsdMobilenetTest, V1HasThePublishedSizes) {
  const NetworkSpec network = Build("ssd_mobilenet_v1", "num_classes: 90");
  const int64_t backbone =
      CountWeights(network, "FeatureExtractor/MobilenetV1/Conv2d_") -
      CountWeights(network, "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_");
  EXPECT_EQ(backbone, 3185088);
  EXPECT_NEAR(CountWeights(network, "BoxPredictor_") / 1e6, 1.39, 0.005);
  EXPECT_EQ(
      MapShapes(network),
      (SidesAndDepths{
          {19, 19, 512}, {10, 10, 1024}, {5, 5, 512}, {3, 3, 256}, {2, 2, 256}, {1, 1, 128}}));
}

TEST(SsdMobilenetTest, SsdliteHas4450000Weights) {
  const NetworkSpec network = Build(
      "ssd_mobilenet_v2", "box_predictor { convolutional_box_predictor { use_depthwise: true } }");
  EXPECT_NEAR(CountWeights(network, "") / 1e6, 4.45, 0.05);
  const auto variables = Variables(network);
  EXPECT_TRUE(variables.count("BoxPredictor_0/ClassPredictor_depthwise/depthwise_weights"));
  EXPECT_TRUE(variables.count("BoxPredictor_0/ClassPredictor_depthwise/BatchNorm/gamma"));
  EXPECT_EQ(variables.at("BoxPredictor_5/ClassPredictor/weights").shape,
            (std::vector<int64_t>{1, 1, 128, 6 * 91}));
}

TEST(SsdMobilenetTest, SoftmaxNeedsATargetForBackground) {
  const auto problems = [](const std::string& fields) {
    const auto config =
        MakeSsdTestConfig("ssd_mobilenet_v1", "loss { classification_loss { " + fields);
    return std::string(ValidatePipelineConfig(config, {}).ToStatus("test").message());
  };
  EXPECT_THAT(problems("weighted_softmax {} } } encode_background_as_zeros: true"),
              HasSubstr("model.ssd.encode_background_as_zeros: expected false with "
                        "weighted_softmax, got true; an anchor without an object would have no "
                        "loss"));
  EXPECT_THAT(problems("weighted_softmax {} } }"), Not(HasSubstr("model.ssd")));
  for (const std::string sigmoid : {"weighted_sigmoid", "weighted_sigmoid_focal"}) {
    EXPECT_THAT(problems(sigmoid + " {} } } encode_background_as_zeros: true"),
                Not(HasSubstr("encode_background_as_zeros")));
  }
}

// Layers have biases if their conv_hyperparams have no batch_norm, as they do in TensorFlow.
TEST(SsdMobilenetTest, LayersAfterTheBackboneMayDoWithoutBatchNorm) {
  auto config = MakeSsdTestConfig("ssd_mobilenet_v1",
                                  "box_predictor { convolutional_box_predictor { max_depth: 64 "
                                  "num_layers_before_predictor: 1 } }");
  config::Ssd& ssd = *config.mutable_model()->mutable_ssd();
  const auto problems = [&] {
    return std::string(ValidatePipelineConfig(config, {}).ToStatus("test").message());
  };
  ssd.mutable_feature_extractor()->mutable_conv_hyperparams()->clear_batch_norm();
  ssd.mutable_box_predictor()
      ->mutable_convolutional_box_predictor()
      ->mutable_conv_hyperparams()
      ->clear_batch_norm();
  EXPECT_THAT(problems(), Not(HasSubstr("model.ssd")));
  const auto variables = Variables(BuildSsd(ssd));
  const std::string extra =
      "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_2_Conv2d_2_3x3_s2_512";
  EXPECT_EQ(variables.at(extra + "/biases").shape, (std::vector<int64_t>{512}));
  EXPECT_EQ(variables.at("BoxPredictor_0/Conv2d_0_1x1_64/biases").shape,
            (std::vector<int64_t>{64}));
  for (const auto& [name, variable] : variables) {
    EXPECT_EQ(name.find("BatchNorm") != std::string::npos,
              variable.shape.size() == 1 && name.find("/biases") == std::string::npos)
        << name;
    const bool is_backbone = name.find("MobilenetV1/Conv2d_") != std::string::npos &&
                             name.find("_pointwise_") == std::string::npos;
    EXPECT_TRUE(is_backbone || name.find("BatchNorm") == std::string::npos) << name;
  }

  const char missing[] = "model.ssd.feature_extractor.conv_hyperparams.batch_norm";
  config::SsdFeatureExtractor& extractor = *ssd.mutable_feature_extractor();
  extractor.set_use_depthwise(true);
  EXPECT_THAT(problems(), HasSubstr(missing)) << "a depthwise convolution has no biases";
  extractor.set_use_depthwise(false);
  extractor.set_override_base_feature_extractor_hyperparams(true);
  EXPECT_THAT(problems(), HasSubstr(missing)) << "the backbone needs it";
  extractor.set_override_base_feature_extractor_hyperparams(false);
  extractor.mutable_conv_hyperparams()->clear_initializer();
  EXPECT_THAT(problems(), HasSubstr("model.ssd.feature_extractor.conv_hyperparams.initializer"));
  ssd.mutable_box_predictor()->mutable_convolutional_box_predictor()->set_use_depthwise(true);
  EXPECT_THAT(problems(), HasSubstr("convolutional_box_predictor.conv_hyperparams.batch_norm"));
}

TEST(SsdMobilenetTest, VariablesHaveTensorflowsNames) {
  const auto v2 = Variables(Build("ssd_mobilenet_v2"));
  for (const char* name :
       {"FeatureExtractor/MobilenetV2/Conv/weights",
        "FeatureExtractor/MobilenetV2/expanded_conv/depthwise/depthwise_weights",
        "FeatureExtractor/MobilenetV2/expanded_conv_16/project/BatchNorm/moving_variance",
        "FeatureExtractor/MobilenetV2/layer_19_1_Conv2d_2_1x1_256/weights",
        "FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_2_3x3_s2_512_depthwise/depthwise_weights",
        "FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_5_3x3_s2_128/BatchNorm/beta",
        "BoxPredictor_0/BoxEncodingPredictor/weights", "BoxPredictor_5/ClassPredictor/biases"}) {
    EXPECT_TRUE(v2.count(name)) << name;
  }
  EXPECT_EQ(v2.at("BoxPredictor_1/BoxEncodingPredictor/weights").shape,
            (std::vector<int64_t>{3, 3, 1280, 24}));
  const auto v1 = Variables(Build("ssd_mobilenet_v1"));
  for (const char* name :
       {"FeatureExtractor/MobilenetV1/Conv2d_0/weights",
        "FeatureExtractor/MobilenetV1/Conv2d_13_depthwise/depthwise_weights",
        "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise/BatchNorm/moving_mean",
        "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_1_Conv2d_2_1x1_256/weights",
        "FeatureExtractor/MobilenetV1/Conv2d_13_pointwise_2_Conv2d_5_3x3_s2_128/weights"}) {
    EXPECT_TRUE(v1.count(name)) << name;
  }
}

TEST(SsdMobilenetTest, HyperparametersReachTheirScopes) {
  const std::string decay = "conv_hyperparams { batch_norm { decay: 0.9 } }";
  const auto plain = Variables(Build("ssd_mobilenet_v2", "feature_extractor { " + decay + " }"));
  const std::string base = "FeatureExtractor/MobilenetV2/expanded_conv_3/";
  const std::string extra =
      "FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_3_3x3_s2_256_depthwise/";
  EXPECT_FLOAT_EQ(plain.at(base + "expand/BatchNorm/moving_mean").moving_average_decay, 0.9997f);
  EXPECT_FLOAT_EQ(plain.at(extra + "BatchNorm/moving_mean").moving_average_decay, 0.9f);
  EXPECT_FLOAT_EQ(plain.at(base + "expand/weights").initializer.stddev, 0.09f);
  EXPECT_FLOAT_EQ(plain.at(base + "expand/weights").l2_weight, 0.00004f);
  EXPECT_FLOAT_EQ(plain.at(base + "depthwise/depthwise_weights").l2_weight, 0.0f);
  EXPECT_FLOAT_EQ(plain.at(extra + "depthwise_weights").l2_weight, 0.00004f);
  EXPECT_FLOAT_EQ(plain.at(extra + "depthwise_weights").initializer.stddev, 0.03f);

  const auto overridden = Variables(Build(
      "ssd_mobilenet_v2",
      "feature_extractor { override_base_feature_extractor_hyperparams: true " + decay + " }"));
  EXPECT_FLOAT_EQ(overridden.at(base + "expand/BatchNorm/moving_mean").moving_average_decay, 0.9f);
  EXPECT_FLOAT_EQ(overridden.at(base + "expand/weights").initializer.stddev, 0.03f);
}

TEST(SsdMobilenetTest, FollowsPredictorOptions) {
  const NetworkSpec network =
      Build("ssd_mobilenet_v1",
            "box_predictor { convolutional_box_predictor { use_dropout: true "
            "dropout_keep_probability: 0.7 class_prediction_bias_init: -4.6 } }");
  const DetectionHead& head = network.detection->heads[2];
  const Node& before_classes = network.nodes[network.nodes[head.class_node].inputs[0]];
  ASSERT_TRUE(std::holds_alternative<op::Dropout>(before_classes.op)) << before_classes.name;
  EXPECT_FLOAT_EQ(std::get<op::Dropout>(before_classes.op).keep_probability, 0.7f);
  // The boxes read the map without a dropout.
  EXPECT_EQ(network.nodes[head.box_node].inputs, before_classes.inputs);
  const auto variables = Variables(network);
  EXPECT_FLOAT_EQ(variables.at("BoxPredictor_2/ClassPredictor/biases").initializer.mean, -4.6f);
  EXPECT_FLOAT_EQ(variables.at("BoxPredictor_2/BoxEncodingPredictor/biases").initializer.mean, 0);
}

// TensorFlow 1 numbers the predictors if there are several maps, TensorFlow 2 always.
TEST(SsdMobilenetTest, ThePredictorOfTheOnlyMapHasNoScopeInTensorflow1) {
  const auto build = [](const std::string& type) {
    const NetworkSpec network =
        Build(type,
              "image_resizer { fixed_shape_resizer { height: 64 width: 64 } } feature_extractor { "
              "fpn { min_level: 5 max_level: 5 } } box_predictor { convolutional_box_predictor { "
              "num_layers_before_predictor: 1 max_depth: 32 } }");
    EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
    EXPECT_EQ(network.detection->heads.size(), 1u);
    return Variables(network);
  };
  const auto slim = build("ssd_mobilenet_v1_fpn"), keras = build("ssd_mobilenet_v1_fpn_keras");
  for (const char* name :
       {"BoxEncodingPredictor/weights", "ClassPredictor/biases", "Conv2d_0_1x1_32/weights"}) {
    EXPECT_TRUE(slim.contains(name)) << name;
    EXPECT_TRUE(keras.contains(std::string("BoxPredictor_0/") + name)) << name;
  }
}

TEST(SsdMobilenetTest, AddsLayersBeforeThePredictor) {
  const auto build = [](const std::string& depths) {
    return Build("ssd_mobilenet_v1",
                 "box_predictor { convolutional_box_predictor { num_layers_before_predictor: 2 " +
                     depths + " } }");
  };
  const NetworkSpec network = build("min_depth: 16 max_depth: 300");
  const auto variables = Variables(network);
  // The first map is deeper than max_depth, the last one is shallower.
  EXPECT_EQ(variables.at("BoxPredictor_0/Conv2d_0_1x1_300/weights").shape,
            (std::vector<int64_t>{1, 1, 512, 300}));
  EXPECT_EQ(variables.at("BoxPredictor_0/Conv2d_1_1x1_300/weights").shape,
            (std::vector<int64_t>{1, 1, 300, 300}));
  EXPECT_EQ(variables.at("BoxPredictor_5/Conv2d_1_1x1_128/BatchNorm/beta").shape,
            (std::vector<int64_t>{128}));
  const DetectionHead& head = network.detection->heads[0];
  EXPECT_EQ(network.nodes[head.box_node].inputs, network.nodes[head.class_node].inputs);
  EXPECT_EQ(network.nodes[network.nodes[head.box_node].inputs[0]].name,
            "BoxPredictor_0/Conv2d_1_1x1_300/Relu6");
  // With a max_depth of 0, as in TensorFlow's samples, there is no such layer.
  EXPECT_FALSE(Variables(build("max_depth: 0")).contains("BoxPredictor_0/Conv2d_0_1x1_0/weights"));
}

// TensorFlow's detectors regularise all weights of the layers that conv_hyperparams describes.
TEST(SsdMobilenetTest, DepthwiseWeightsAreRegularisedUnlessTheConfigSaysNo) {
  const auto weights = [](const std::string& field) {
    const std::string hyperparams = "conv_hyperparams { " + field + " }";
    const auto variables =
        Variables(Build("ssd_mobilenet_v2", "feature_extractor { " + hyperparams +
                                                " } box_predictor { convolutional_box_predictor { "
                                                "use_depthwise: true " +
                                                hyperparams + " } }"));
    const std::string extra = "FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_2_3x3_s2_512";
    EXPECT_FLOAT_EQ(variables.at(extra + "/weights").l2_weight, 4e-5f);
    return std::vector<float>{
        variables.at(extra + "_depthwise/depthwise_weights").l2_weight,
        variables.at("BoxPredictor_0/ClassPredictor_depthwise/depthwise_weights").l2_weight};
  };
  EXPECT_THAT(weights(""), ElementsAre(4e-5f, 4e-5f));
  EXPECT_THAT(weights("regularize_depthwise: true"), ElementsAre(4e-5f, 4e-5f));
  EXPECT_THAT(weights("regularize_depthwise: false"), ElementsAre(0.0f, 0.0f));
}

// TensorFlow 1's detectors on MobileNetV1, but for the embedded one, ask slim for this loss.
TEST(SsdMobilenetTest, TheScopesOfMostBackbonesOnMobilenetV1RegulariseDepthwiseWeights) {
  const auto weight = [](const std::string& type, const std::string& layer) {
    const auto variables = Variables(Build(type, SsdTestSettings(type, 128)));
    return variables.at("FeatureExtractor/" + layer + "/depthwise_weights").l2_weight;
  };
  const std::string v1 = "MobilenetV1/Conv2d_1_depthwise";
  for (const char* type : {"ssd_mobilenet_v1", "ssd_mobilenet_v1_fpn", "ssd_mobilenet_v1_ppn",
                           "ssd_mobilenet_v1_keras", "ssd_mobilenet_v1_fpn_keras"}) {
    EXPECT_FLOAT_EQ(weight(type, v1), 4e-5f) << type;
  }
  EXPECT_EQ(weight("embedded_ssd_mobilenet_v1", v1), 0.0f);
  const std::string v2 = "MobilenetV2/expanded_conv_1/depthwise";
  EXPECT_EQ(weight("ssd_mobilenet_v2", v2), 0.0f);
  EXPECT_FLOAT_EQ(weight("ssd_mobilenet_v2_keras", v2), 4e-5f);
}

TEST(SsdMobilenetTest, NarrowNetworksKeepTheMinimumDepth) {
  const NetworkSpec network =
      Build("ssd_mobilenet_v2", "feature_extractor { depth_multiplier: 0.35 }");
  const auto variables = Variables(network);
  EXPECT_EQ(variables.at("FeatureExtractor/MobilenetV2/Conv/weights").shape.back(), 16);
  EXPECT_EQ(variables.at("FeatureExtractor/MobilenetV2/Conv_1/weights").shape.back(), 448);
  EXPECT_TRUE(variables.count("FeatureExtractor/MobilenetV2/layer_19_1_Conv2d_2_1x1_89/weights"));
  EXPECT_TRUE(
      variables.count("FeatureExtractor/MobilenetV2/layer_19_2_Conv2d_5_3x3_s2_44/weights"));
}

TEST(SsdMobilenetTest, Tensorflow2DoesNotWidenTheLastConvolutionOfMobilenetV2) {
  const auto depths = [](const std::string& type, const std::string& multiplier) {
    const auto variables =
        Variables(Build(type, "feature_extractor { depth_multiplier: " + multiplier + " }"));
    const std::string root = "FeatureExtractor/MobilenetV2/";
    return std::vector<int64_t>{variables.at(root + "Conv/weights").shape.back(),
                                variables.at(root + "Conv_1/weights").shape.back()};
  };
  EXPECT_THAT(depths("ssd_mobilenet_v2", "1.4"), ElementsAre(48, 1792));
  EXPECT_THAT(depths("ssd_mobilenet_v2_keras", "1.4"), ElementsAre(48, 1280));
  EXPECT_THAT(depths("ssd_mobilenet_v2_keras", "0.35"), ElementsAre(16, 448));
}

TEST(SsdMobilenetTest, SupportsFewerMapsAndFrozenBatchNorm) {
  const NetworkSpec network = Build("ssd_mobilenet_v1",
                                    "freeze_batchnorm: true feature_extractor { num_layers: 3 } "
                                    "anchor_generator { ssd_anchor_generator { num_layers: 3 } }");
  EXPECT_EQ(network.detection->heads.size(), 3u);
  int batch_norms = 0;
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    // Those of the backbone come first, and TensorFlow 1 freezes no others.
    EXPECT_EQ(norm.frozen, ++batch_norms <= 27) << network.variables[norm.moving_mean].name;
    EXPECT_EQ(network.variables[norm.moving_mean].frozen, norm.frozen);
  });
  EXPECT_EQ(batch_norms, 27 + 2);  // the backbone's and those of the third map
}

TEST(SsdMobilenetTest, BackboneAndExtraLayersHaveTheActivationOfTheConfig) {
  const NetworkSpec network = Build("ssd_mobilenet_v2",
                                    "num_classes: 3 feature_extractor { "
                                    "override_base_feature_extractor_hyperparams: true "
                                    "conv_hyperparams { activation: SWISH } } box_predictor { "
                                    "convolutional_box_predictor { conv_hyperparams { "
                                    "activation: SWISH } use_depthwise: true } }");
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  int swish = 0;
  for (const Node& node : network.nodes) {
    const auto* const activation = std::get_if<op::Activation>(&node.op);
    if (activation == nullptr) continue;
    EXPECT_EQ(activation->function, ActivationFunction::kSwish) << node.name;
    ++swish;
  }
  EXPECT_GT(swish, 40);
}

// slim's definition of MobileNetV2 comes after the config's hyperparameters.
TEST(SsdMobilenetTest, BackbonesOnSlimsMobilenetV2KeepGammaBetaAndRelu6) {
  const std::string first = "FeatureExtractor/MobilenetV2/Conv";
  const auto build = [&](const std::string& type) {
    const std::string config =
        "feature_extractor { override_base_feature_extractor_hyperparams: true conv_hyperparams { "
        "activation: RELU batch_norm { scale: false center: false decay: 0.9 } } }";
    const NetworkSpec network = Build(type, config);
    EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
    EXPECT_FLOAT_EQ(Variables(network).at(first + "/BatchNorm/moving_mean").moving_average_decay,
                    0.9f);
    return network;
  };
  const auto activation = [&](const NetworkSpec& network) {
    for (const Node& node : network.nodes) {
      const auto* const found = std::get_if<op::Activation>(&node.op);
      if (found != nullptr && node.name.rfind(first + "/", 0) == 0) return found->function;
    }
    return ActivationFunction::kNone;
  };
  const NetworkSpec slim = build("ssd_mobilenet_v2");
  EXPECT_TRUE(Variables(slim).contains(first + "/BatchNorm/gamma"));
  EXPECT_TRUE(Variables(slim).contains(first + "/BatchNorm/beta"));
  EXPECT_EQ(activation(slim), ActivationFunction::kRelu6);
  const NetworkSpec keras = build("ssd_mobilenet_v2_keras");
  EXPECT_FALSE(Variables(keras).contains(first + "/BatchNorm/gamma"));
  EXPECT_FALSE(Variables(keras).contains(first + "/BatchNorm/beta"));
  EXPECT_EQ(activation(keras), ActivationFunction::kRelu);
}

TEST(SsdMobilenetTest, MakesAnchorsForAnImageThatIsNotSquare) {
  const NetworkSpec network =
      Build("ssd_mobilenet_v1", "image_resizer { fixed_shape_resizer { height: 150 width: 300 } }");
  const auto& anchors = std::get<SsdAnchorSpec>(network.detection->anchors);
  EXPECT_FLOAT_EQ(anchors.base_anchor_height, 1.0f);
  EXPECT_FLOAT_EQ(anchors.base_anchor_width, 0.5f);
  EXPECT_EQ(network.detection->heads[0].height, 10);
  EXPECT_EQ(network.detection->heads[0].width, 19);
}

TEST(SsdMobilenetTest, PassesStridesAndOffsetsOfAnchorsOn) {
  const NetworkSpec network =
      Build("ssd_mobilenet_v1",
            "image_resizer { fixed_shape_resizer { height: 150 width: 300 } } "
            "anchor_generator { ssd_anchor_generator { "
            "height_stride: [16, 32, 64, 100, 150, 300] width_stride: [17, 33, 65, 101, 151, 301] "
            "height_offset: [1, 2, 3, 4, 5, 6] width_offset: [7, 8, 9, 10, 11, 12] } }");
  const auto& anchors = std::get<SsdAnchorSpec>(network.detection->anchors);
  EXPECT_THAT(anchors.height_stride, ElementsAre(16, 32, 64, 100, 150, 300));
  EXPECT_THAT(anchors.width_stride, ElementsAre(17, 33, 65, 101, 151, 301));
  EXPECT_THAT(anchors.height_offset, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(anchors.width_offset, ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(anchors.image_height, 150);
  EXPECT_EQ(anchors.image_width, 300);
}

}  // namespace
}  // namespace pushpull
