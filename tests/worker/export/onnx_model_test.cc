#include "worker/export/onnx_model.h"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/model_layout.h"
#include "kernels/detection/anchors.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/worker/export/export_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// Returns a model as a reader parses it from the file's bytes.
onnx::ModelProto ParseBack(const onnx::ModelProto& built) {
  onnx::ModelProto parsed;
  EXPECT_TRUE(parsed.ParseFromString(built.SerializeAsString()));
  return parsed;
}
onnx::ModelProto ParseBack(const InferenceModel& model) { return ParseBack(BuildOnnxModel(model)); }

std::string MetadataOf(const onnx::ModelProto& model, const std::string& key) {
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == key) return entry.value();
  }
  return "";
}

std::map<std::string, std::string> Types(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  std::map<std::string, std::string> types;
  for (const onnx::ValueInfoProto& value : values) types[value.name()] = TypeText(value);
  return types;
}

int CountNodes(const onnx::ModelProto& model, const std::string& operation) {
  int count = 0;
  for (const onnx::NodeProto& node : model.graph().node()) count += node.op_type() == operation;
  return count;
}

// Runs the network with weights and biases from the exported graph and batch norms that only add
// the bias.
std::vector<float> InferFolded(const InferenceModel& model, const onnx::GraphProto& graph,
                               const std::vector<float>& image) {
  std::vector<float> values(model.values.size());
  const auto fill = [&](int index, const std::vector<float>& from) {
    if (index == op::kNoVariable) return;
    ASSERT_EQ(model.layout.num_elements(index), from.size()) << index;
    std::copy(from.begin(), from.end(), values.begin() + model.layout.offset(index));
  };
  const std::vector<Node>& nodes = model.network.nodes;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto* const dense = std::get_if<op::Convolution>(&nodes[n].op);
    const auto* const depthwise = std::get_if<op::DepthwiseConvolution>(&nodes[n].op);
    if (dense == nullptr && depthwise == nullptr) continue;
    const int variable = dense != nullptr ? dense->weights : depthwise->weights;
    const VariableSpec& spec = model.network.variables[variable];
    const std::vector<float> weights = Floats(*FindInitializer(graph, spec.name));
    const std::vector<float> biases = Floats(*FindInitializer(graph, nodes[n].name + "/biases"));
    const size_t outputs = nodes[n].shape.channels;
    const int64_t inputs = depthwise != nullptr ? 1 : spec.shape[2];
    // A depthwise kernel is exported without the rows and columns that read only padding.
    const onnx::NodeProto& conv = *FindProducer(graph, nodes[n].name + "/Conv");
    const std::vector<int64_t> kernel = Integers(conv, "kernel_shape");
    const std::vector<int64_t> pads = Integers(conv, "pads");
    const SpatialPadding& padding =
        dense != nullptr ? dense->window.padding : depthwise->window.padding;
    const int64_t first_row = padding.top - pads[0], first_column = padding.left - pads[1];
    std::vector<float> ours(model.layout.num_elements(variable));
    for (size_t at = 0; at < weights.size(); ++at) {
      const int64_t x = at % kernel[1], y = at / kernel[1] % kernel[0];
      const int64_t plane = at / (kernel[0] * kernel[1]);
      const int64_t in = plane % inputs, out = plane / inputs;
      const int64_t pixel = (y + first_row) * spec.shape[1] + x + first_column;
      ours[(pixel * inputs + in) * outputs + out] = weights[at];
    }
    fill(variable, ours);
    if (dense != nullptr) fill(dense->biases, biases);
    const auto* const norm =
        n + 1 < nodes.size() ? std::get_if<op::BatchNorm>(&nodes[n + 1].op) : nullptr;
    if (norm == nullptr) continue;
    fill(norm->beta, biases);
    fill(norm->gamma, std::vector<float>(outputs, 1.0f));
    fill(norm->moving_variance, std::vector<float>(outputs, 1.0f - norm->epsilon));
  }
  return Infer(model.network, values, image);
}

TEST(OnnxModelTest, EveryModelIsAWellFormedGraph) {
  for (const ExportCase& c : ExportCases()) {
    SCOPED_TRACE(c.name);
    const InferenceModel model = MakeInferenceModel(c.config);
    const onnx::ModelProto exported = ParseBack(model);
    EXPECT_EQ(Faults(exported), "");
    EXPECT_EQ(exported.ir_version(), 7);
    ASSERT_EQ(exported.opset_import_size(), 1);
    EXPECT_EQ(exported.opset_import(0).version(), 13);
    EXPECT_EQ(exported.opset_import(0).domain(), "");
    EXPECT_EQ(exported.graph().name(), model.network.name);
    int convolutions = 0, skips = 0, hard_sigmoids = 0;
    for (const Node& node : model.network.nodes) {
      convolutions += std::holds_alternative<op::Convolution>(node.op) ||
                      std::holds_alternative<op::DepthwiseConvolution>(node.op) ||
                      std::holds_alternative<op::RepeatChannels>(node.op);
      skips += std::holds_alternative<op::Add>(node.op);
      const auto* const activation = std::get_if<op::Activation>(&node.op);
      hard_sigmoids +=
          activation != nullptr && activation->function == ActivationFunction::kHardSigmoid;
    }
    EXPECT_EQ(CountNodes(exported, "Conv"), convolutions);
    EXPECT_EQ(CountNodes(exported, "BatchNormalization"), 0);
    // A hard sigmoid has one Add. In a detector one more makes the anchors' centres, one the lower
    // right corners, and one numbers the labels.
    EXPECT_EQ(CountNodes(exported, "Add"),
              skips + hard_sigmoids + (model.network.detection ? 3 : 0));
    EXPECT_EQ(BuildOnnxModel(model).SerializeAsString(), BuildOnnxModel(model).SerializeAsString());
  }
}

bool SharesWeights(const NetworkSpec& network) {
  std::set<int> variables;
  for (const Node& node : network.nodes) {
    for (const int variable : VariablesOf(node.op)) {
      if (!variables.insert(variable).second) return true;
    }
  }
  return false;
}

TEST(OnnxModelTest, FoldedWeightsGiveTheSameResults) {
  for (const ExportCase& c : ExportCases()) {
    SCOPED_TRACE(c.name);
    const InferenceModel model = MakeInferenceModel(c.config);
    // Each node has folded weights of its own, which the network cannot have.
    if (SharesWeights(model.network)) continue;
    std::vector<float> image(model.network.input.num_elements());
    for (size_t i = 0; i < image.size(); ++i) image[i] = std::sin(0.37f * static_cast<float>(i));
    const std::vector<float> expected = Infer(model.network, model.values, image);
    const std::vector<float> folded = InferFolded(model, ParseBack(model).graph(), image);
    ASSERT_EQ(folded.size(), expected.size());
    float spread = 0.0f;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(folded[i], expected[i], 2e-5f * (1.0f + std::abs(expected[i]))) << i;
      spread = std::max(spread, std::abs(expected[i] - expected[0]));
    }
    EXPECT_GT(spread, 0.1f);
  }
}

// After two updates with decay 0.9, moving statistics mostly consist of their initial value.
TEST(OnnxModelTest, ExportsCorrectedStatistics) {
  const config::TrainEvalPipelineConfig config = ClassifierConfig(
      "feature_extractor { conv_hyperparams { activation: RELU_6 batch_norm { decay: 0.9 scale: "
      "true epsilon: 0.001 bias_corrected_moving_statistics: true } } }");
  const VariableLayout layout = BuildVariableLayout(config);
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectory("/run").ok());
  PublishTestCheckpoint(files, "/run", layout, {.step = 2, .updates = 2, .seed = 5});
  const auto model = LoadInferenceModel(files, "/run", config, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> raw = RandomValues(layout, 5);
  const std::vector<float> image(model->network.input.num_elements(), 0.5f);
  const std::vector<float> expected = Infer(model->network, raw, image, 2);
  const std::vector<float> folded = InferFolded(*model, ParseBack(*model).graph(), image);
  ASSERT_EQ(folded.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(folded[i], expected[i], 1e-4f * (1.0f + std::abs(expected[i]))) << i;
  }
  EXPECT_GT(std::abs(Infer(model->network, raw, image)[0] - expected[0]), 1e-2f);
  const int64_t mean = layout.offset(*layout.Find("MobilenetV2/Conv/BatchNorm/moving_mean"));
  EXPECT_FLOAT_EQ(model->values[mean], raw[mean] / 0.19f);
}

TEST(OnnxModelTest, FoldsBatchNormIntoWeightsAndBias) {
  InferenceModel model = MakeInferenceModel(ClassifierConfig());
  const auto at = [&](const std::string& name) {
    return model.layout.offset(*model.layout.Find("MobilenetV2/Conv/" + name));
  };
  const int64_t channels = model.network.nodes[0].shape.channels;
  const float epsilon = std::get<op::BatchNorm>(model.network.nodes[1].op).epsilon;
  model.values[at("BatchNorm/gamma") + 1] = 3.0f;
  model.values[at("BatchNorm/beta") + 1] = 0.25f;
  model.values[at("BatchNorm/moving_mean") + 1] = -2.0f;
  model.values[at("BatchNorm/moving_variance") + 1] = 4.0f - epsilon;
  // Row 2, column 0 of the kernel for channel 1.
  model.values[at("weights") + 6 * channels + 1] = 0.5f;
  const onnx::ModelProto exported = ParseBack(model);
  const onnx::TensorProto& weights = *FindInitializer(exported.graph(), "MobilenetV2/Conv/weights");
  EXPECT_THAT(Dimensions(weights), ElementsAre(channels, 1, 3, 3));
  EXPECT_FLOAT_EQ(Floats(weights)[1 * 9 + 6], 0.5f * 3.0f / 2.0f);
  const onnx::TensorProto& biases = *FindInitializer(exported.graph(), "MobilenetV2/Conv/biases");
  EXPECT_FLOAT_EQ(Floats(biases)[1], 2.0f * 3.0f / 2.0f + 0.25f);
}

TEST(OnnxModelTest, SwishIsTheProductWithTheSigmoid) {
  const onnx::ModelProto exported = ParseBack(MakeInferenceModel(ClassifierConfig(
      "feature_extractor { conv_hyperparams { activation: SWISH batch_norm { scale: true } } }")));
  EXPECT_EQ(CountNodes(exported, "Clip"), 0);
  EXPECT_EQ(CountNodes(exported, "Sigmoid"), 35);  // Conv, 16 expand, 17 depthwise, Conv_1
  const onnx::NodeProto* const product = FindProducer(exported.graph(), "MobilenetV2/Conv/Swish");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->op_type(), "Mul");
  const onnx::NodeProto* const sigmoid = FindProducer(exported.graph(), product->input(1));
  ASSERT_NE(sigmoid, nullptr);
  EXPECT_EQ(sigmoid->op_type(), "Sigmoid");
  EXPECT_EQ(sigmoid->input(0), product->input(0));
}

// OpenCV takes every product a * HardSigmoid(b) for HardSwish(b).
TEST(OnnxModelTest, OnlyHardSwishHasTheOperatorHardSigmoid) {
  const onnx::GraphProto graph =
      ParseBack(
          MakeInferenceModel(ClassifierConfig("feature_extractor { type: 'mobilenet_v3_small' }")))
          .graph();
  int swishes = 0, gates = 0;
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.op_type() != "Mul") continue;
    const onnx::NodeProto* const gate = FindProducer(graph, node.input(1));
    if (gate == nullptr) continue;
    if (gate->op_type() == "HardSigmoid") {
      EXPECT_EQ(gate->input(0), node.input(0)) << node.name();
      ++swishes;
    } else {
      EXPECT_EQ(gate->op_type(), "Clip") << node.name();
      ++gates;
    }
  }
  EXPECT_GT(swishes, 10);
  EXPECT_EQ(gates, 9);  // the blocks with squeeze and excitation
}

TEST(OnnxModelTest, PadsAsTensorFlowsSame) {
  const onnx::ModelProto exported = ParseBack(MakeInferenceModel(ClassifierConfig()));
  const onnx::NodeProto* const first = FindProducer(exported.graph(), "MobilenetV2/Conv/Conv");
  ASSERT_NE(first, nullptr);
  // An input of 40 x 33 at stride 2: the even axis is only padded at its end, the odd one on both
  // sides.
  EXPECT_THAT(Integers(*first, "pads"), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(Integers(*first, "strides"), ElementsAre(2, 2));
  EXPECT_THAT(Integers(*first, "group"), ElementsAre(1));
  const onnx::NodeProto* const depthwise =
      FindProducer(exported.graph(), "MobilenetV2/expanded_conv_1/depthwise/Conv");
  ASSERT_NE(depthwise, nullptr);
  EXPECT_THAT(Dimensions(*FindInitializer(exported.graph(), depthwise->input(1))),
              ElementsAre(Integers(*depthwise, "group")[0], 1, 3, 3));
  const onnx::NodeProto* const clip = FindProducer(exported.graph(), "MobilenetV2/Conv/Relu6");
  ASSERT_NE(clip, nullptr);
  ASSERT_EQ(clip->op_type(), "Clip");
  EXPECT_THAT(Floats(*FindInitializer(exported.graph(), clip->input(1))), ElementsAre(0.0f));
  EXPECT_THAT(Floats(*FindInitializer(exported.graph(), clip->input(2))), ElementsAre(6.0f));
}

TEST(OnnxModelTest, RepeatsChannelsByAConvolutionWithGroups) {
  const InferenceModel model = MakeInferenceModel(
      ClassifierConfig("num_channels: 3 feature_extractor { type: 'inception_v2' }"));
  const onnx::GraphProto graph = ParseBack(model).graph();
  const onnx::NodeProto* const repeat = FindProducer(graph, "InceptionV2/Conv2d_1a_7x7/repeat");
  ASSERT_NE(repeat, nullptr);
  EXPECT_EQ(repeat->op_type(), "Conv");
  EXPECT_THAT(Integers(*repeat, "group"), ElementsAre(3));
  const onnx::TensorProto& ones = *FindInitializer(graph, repeat->input(1));
  const int64_t channels = Dimensions(ones)[0];
  EXPECT_THAT(Dimensions(ones), ElementsAre(channels, 1, 1, 1));
  EXPECT_EQ(Floats(ones), std::vector<float>(channels, 1.0f));
  const onnx::NodeProto* const depthwise =
      FindProducer(graph, "InceptionV2/Conv2d_1a_7x7/depthwise/Conv");
  ASSERT_NE(depthwise, nullptr);
  EXPECT_THAT(Integers(*depthwise, "group"), ElementsAre(channels));
}

// OpenCV 4.14 computes depthwise 3x3 convolutions wrongly where a side of the map is 1.
TEST(OnnxModelTest, DepthwiseKernelsHaveNoPartThatReadsOnlyPadding) {
  const InferenceModel model = MakeInferenceModel(ClassifierConfig(
      "num_channels: 3 image_resizer { fixed_shape_resizer { height: 32 width: 64 } }"));
  const onnx::GraphProto graph = ParseBack(model).graph();
  // The inputs have 2x4 and 1x2 pixels.
  const onnx::NodeProto* const strided =
      FindProducer(graph, "MobilenetV2/expanded_conv_13/depthwise/Conv");
  EXPECT_THAT(Integers(*strided, "kernel_shape"), ElementsAre(2, 3));
  EXPECT_THAT(Integers(*strided, "pads"), ElementsAre(0, 0, 0, 1));
  const onnx::NodeProto* const last =
      FindProducer(graph, "MobilenetV2/expanded_conv_16/depthwise/Conv");
  EXPECT_THAT(Integers(*last, "kernel_shape"), ElementsAre(1, 3));
  EXPECT_THAT(Integers(*last, "pads"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Integers(*last, "strides"), ElementsAre(1, 1));
  // The middle row of the kernel of the first channel.
  const std::string name = "MobilenetV2/expanded_conv_16/depthwise/depthwise_weights";
  const std::vector<float> kept = Floats(*FindInitializer(graph, name));
  const absl::Span<const float> all = ValuesOf(model, name);
  const size_t channels = all.size() / 9;
  ASSERT_EQ(kept.size(), 3 * channels);
  EXPECT_NEAR(kept[0] / kept[1], all[3 * channels] / all[4 * channels], 1e-4);
  EXPECT_NEAR(kept[2] / kept[1], all[5 * channels] / all[4 * channels], 1e-4);
}

TEST(OnnxModelTest, TheClassifierMapsImagesToScores) {
  const onnx::ModelProto exported = ParseBack(MakeInferenceModel(ClassifierConfig()));
  EXPECT_EQ(Types(exported.graph().input()),
            (std::map<std::string, std::string>{{"input", "uint8[N,H,W,1]"}}));
  EXPECT_EQ(Types(exported.graph().output()),
            (std::map<std::string, std::string>{{"logits", "float[N,5]"},
                                                {"probabilities", "float[N,5]"}}));
  EXPECT_EQ(MetadataOf(exported, "model"), "MobilenetV2");
  EXPECT_EQ(MetadataOf(exported, "step"), "7");
  EXPECT_EQ(MetadataOf(exported, "weights"), "raw");
  EXPECT_EQ(MetadataOf(exported, "heads"), "full");
  EXPECT_EQ(MetadataOf(exported, "input"), "40x33x1");
  EXPECT_THAT(MetadataOf(exported, "preprocessing"), testing::HasSubstr("x * (2 / 255) - 1"));
}

TEST(OnnxModelTest, MetadataDescribesThePadding) {
  const onnx::ModelProto exported = ParseBack(MakeInferenceModel(ClassifierConfig(
      "num_channels: 3 image_resizer { keep_aspect_ratio_resizer { min_dimension: 48 "
      "max_dimension: 80 pad_to_max_dimension: true per_channel_pad_value: 1 "
      "per_channel_pad_value: 2 per_channel_pad_value: 3.5 } }")));
  EXPECT_EQ(MetadataOf(exported, "preprocessing"),
            "bilinear resize to a shorter side of 48, or a longer side of 80 where that is smaller "
            "(source = out * in_size / out_size), padding below and on the right with 1, 2, 3.5 to "
            "80x80, then x * (2 / 255) - 1");
}

TEST(OnnxModelTest, TheDetectorHasTensorFlowsNames) {
  const InferenceModel model = MakeInferenceModel(DetectorConfig("ssd_mobilenet_v2"));
  const onnx::ModelProto exported = ParseBack(model);
  const std::string anchors = absl::StrCat(model.network.detection->num_anchors());
  EXPECT_EQ(Types(exported.graph().input()),
            (std::map<std::string, std::string>{{"image_tensor", "uint8[N,H,W,3]"}}));
  EXPECT_EQ(
      Types(exported.graph().output()),
      (std::map<std::string, std::string>{{"detection_boxes", "float[N,100,4]"},
                                          {"detection_scores", "float[N,100]"},
                                          {"detection_classes", "float[N,100]"},
                                          {"num_detections", "float[N]"},
                                          {"raw_detection_boxes", "float[N," + anchors + ",4]"},
                                          {"raw_detection_scores", "float[N," + anchors + ",4]"}}));
}

TEST(OnnxModelTest, PostProcessingFollowsTheConfig) {
  const InferenceModel model = MakeInferenceModel(DetectorConfig(
      "ssd_mobilenet_v1",
      "post_processing { batch_non_max_suppression { score_threshold: 0.25 iou_threshold: 0.5 "
      "max_detections_per_class: 7 max_total_detections: 5000 } score_converter: SOFTMAX "
      "logit_scale: 4 } box_coder { faster_rcnn_box_coder { y_scale: 20 width_scale: 2.5 } }"));
  const onnx::GraphProto graph = ParseBack(model).graph();
  const onnx::NodeProto* const kept = FindProducer(graph, "post_processing/kept");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->op_type(), "NonMaxSuppression");
  const onnx::TensorProto& per_class = *FindInitializer(graph, kept->input(2));
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(per_class.raw_data().data()), 7);
  EXPECT_THAT(Floats(*FindInitializer(graph, kept->input(3))), ElementsAre(0.5f));
  EXPECT_THAT(Floats(*FindInitializer(graph, kept->input(4))), ElementsAre(0.25f));
  EXPECT_EQ(FindProducer(graph, "raw_detection_scores")->op_type(), "Softmax");
  EXPECT_THAT(Floats(*FindInitializer(graph, "post_processing/logit_scale")), ElementsAre(4.0f));
  EXPECT_THAT(Floats(*FindInitializer(graph, "post_processing/size_scales")),
              ElementsAre(5.0f, 2.5f));
  // There are fewer boxes than rows, so the candidates are padded; otherwise TopK would fail.
  EXPECT_NE(FindProducer(graph, "post_processing/padded_candidates"), nullptr);

  const std::vector<BoundingBox> anchors =
      GenerateAnchors(model.network.detection->anchors, model.network.detection->heads);
  const std::vector<float> centers =
      Floats(*FindInitializer(graph, "post_processing/anchor_centers"));
  const std::vector<float> steps = Floats(*FindInitializer(graph, "post_processing/anchor_steps"));
  ASSERT_EQ(centers.size(), 2 * anchors.size());
  for (size_t i = 0; i < anchors.size(); ++i) {
    EXPECT_FLOAT_EQ(centers[2 * i], 0.5f * (anchors[i].ymin + anchors[i].ymax));
    EXPECT_FLOAT_EQ(steps[2 * i], anchors[i].height() / 20.0f);
    EXPECT_FLOAT_EQ(steps[2 * i + 1], anchors[i].width() / 10.0f);
  }
}

// Returns all operators of the graph but those of the network's layers.
std::set<std::string> OtherOperators(const onnx::ModelProto& model) {
  static const std::set<std::string> kLayers = {
      "Add",         "AveragePool", "Clip", "Concat",    "Conv", "GlobalAveragePool",
      "HardSigmoid", "MaxPool",     "Mul",  "LeakyRelu", "Relu", "Resize",
      "Sigmoid"};
  std::set<std::string> result;
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (kLayers.count(node.op_type()) == 0) result.insert(node.op_type());
  }
  return result;
}

TEST(OnnxModelTest, RawHeadsAreTheNetworkAloneWithFixedShapes) {
  for (const ExportCase& c : ExportCases()) {
    SCOPED_TRACE(c.name);
    const InferenceModel model = MakeInferenceModel(c.config);
    const NetworkSpec& network = model.network;
    const onnx::ModelProto raw = ParseBack(BuildRawHeadsModel(model));
    EXPECT_EQ(Faults(raw), "");
    EXPECT_EQ(raw.ir_version(), 7);
    EXPECT_EQ(MetadataOf(raw, "heads"), "raw");
    EXPECT_EQ(Types(raw.graph().input()),
              (std::map<std::string, std::string>{
                  {"input", absl::StrCat("float[1,", network.input.channels, ",",
                                         network.input.height, ",", network.input.width, "]")}}));
    if (!network.detection.has_value()) {
      EXPECT_THAT(OtherOperators(raw), ElementsAre("Flatten", "Softmax"));
      EXPECT_EQ(Types(raw.graph().output()),
                (std::map<std::string, std::string>{{"logits", "float[1,5]"},
                                                    {"probabilities", "float[1,5]"}}));
      continue;
    }
    EXPECT_THAT(OtherOperators(raw), ElementsAre("Reshape", "Transpose"));
    const std::string anchors = absl::StrCat(network.detection->num_anchors());
    EXPECT_EQ(Types(raw.graph().output()),
              (std::map<std::string, std::string>{
                  {"box_encodings", "float[1," + anchors + ",4]"},
                  {"class_predictions_with_background", "float[1," + anchors + ",4]"}}));
  }
}

TEST(OnnxModelTest, RawHeadsAreJoinedInTheOrderOfTheAnchors) {
  const InferenceModel model = MakeInferenceModel(DetectorConfig("ssd_mobilenet_v2"));
  const onnx::GraphProto graph = ParseBack(BuildRawHeadsModel(model)).graph();
  const std::vector<DetectionHead>& heads = model.network.detection->heads;
  const auto check = [&](const std::string& output, int64_t columns,
                         int DetectionHead::*node_of_head) {
    const onnx::NodeProto* const joined = FindProducer(graph, output);
    ASSERT_NE(joined, nullptr);
    EXPECT_EQ(joined->op_type(), "Concat");
    EXPECT_THAT(Integers(*joined, "axis"), ElementsAre(1));
    ASSERT_EQ(joined->input_size(), heads.size());
    for (size_t i = 0; i < heads.size(); ++i) {
      const onnx::NodeProto* const rows = FindProducer(graph, joined->input(static_cast<int>(i)));
      ASSERT_EQ(rows->op_type(), "Reshape");
      const onnx::TensorProto& shape = *FindInitializer(graph, rows->input(1));
      std::vector<int64_t> sizes(3);
      ASSERT_EQ(shape.raw_data().size(), sizes.size() * sizeof(int64_t));
      std::memcpy(sizes.data(), shape.raw_data().data(), shape.raw_data().size());
      EXPECT_THAT(sizes, ElementsAre(0, -1, columns));
      const onnx::NodeProto* const pixels = FindProducer(graph, rows->input(0));
      ASSERT_EQ(pixels->op_type(), "Transpose");
      EXPECT_THAT(Integers(*pixels, "perm"), ElementsAre(0, 2, 3, 1));
      EXPECT_EQ(pixels->input(0), model.network.nodes[heads[i].*node_of_head].name + "/Conv");
    }
  };
  check("box_encodings", 4, &DetectionHead::box_node);
  check("class_predictions_with_background", 4, &DetectionHead::class_node);
}

}  // namespace
}  // namespace pushpull
