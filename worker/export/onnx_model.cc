#include "worker/export/onnx_model.h"

#include <utility>

#include "worker/export/model_metadata.h"
#include "worker/export/onnx_detection.h"
#include "worker/export/onnx_graph.h"
#include "worker/export/onnx_heads.h"
#include "worker/export/onnx_network.h"
#include "worker/export/onnx_preprocessing.h"

namespace pushpull {
namespace {

constexpr onnx::TensorProto::DataType kFloat = onnx::TensorProto::FLOAT;

void AddClassification(const NetworkSpec& network, const std::string& scores,
                       const OnnxDimension& batch, OnnxGraph* graph) {
  const std::vector<OnnxDimension> shape = {batch, int64_t{network.num_classes}};
  graph->AddNode("Flatten", kLogits, {scores}, {{"axis", int64_t{1}}});
  graph->AddNode("Softmax", kProbabilities, {kLogits}, {{"axis", int64_t{1}}});
  graph->AddOutput(kLogits, kFloat, shape);
  graph->AddOutput(kProbabilities, kFloat, shape);
}

void AddRawHeads(const DetectionSpec& spec, const std::vector<std::string>& nodes,
                 OnnxGraph* graph) {
  AddJoinedHeads(spec, nodes, {kRawBoxes, kRawScores}, graph);
  const int64_t anchors = spec.num_anchors();
  graph->AddOutput(kRawBoxes, kFloat, {int64_t{1}, anchors, int64_t{kBoxCodeSize}});
  graph->AddOutput(kRawScores, kFloat, {int64_t{1}, anchors, int64_t{spec.num_classes + 1}});
}

onnx::ModelProto MakeModel(const InferenceModel& model, const std::string& heads, OnnxGraph graph) {
  onnx::ModelProto result;
  result.set_ir_version(kOnnxIrVersion);
  result.set_producer_name("pushpull");
  result.add_opset_import()->set_version(kOnnxOpset);
  *result.mutable_graph() = std::move(graph).Finish();
  std::map<std::string, std::string> metadata = DescribeModel(model);
  metadata["heads"] = heads;
  for (const auto& [key, value] : metadata) {
    onnx::StringStringEntryProto* const entry = result.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  return result;
}

}  // namespace

onnx::ModelProto BuildOnnxModel(const InferenceModel& model) {
  const bool detector = model.network.detection.has_value();
  OnnxGraph graph(model.network.name);
  const OnnxInput input =
      AddPreprocessing(detector ? "image_tensor" : "input", model.network, &graph);
  const std::vector<std::string> nodes = AddNodes(model, input.image, &graph);
  if (detector) {
    AddDetection(model.network, nodes, input.content_size, &graph);
  } else {
    AddClassification(model.network, nodes.back(), "N", &graph);
  }
  return MakeModel(model, "full", std::move(graph));
}

onnx::ModelProto BuildRawHeadsModel(const InferenceModel& model) {
  const NetworkSpec& network = model.network;
  const FeatureShape& input = network.input;
  OnnxGraph graph(network.name);
  const std::string image = graph.AddInput(
      kRawInput, kFloat,
      {int64_t{1}, int64_t{input.channels}, int64_t{input.height}, int64_t{input.width}});
  const std::vector<std::string> nodes = AddNodes(model, image, &graph);
  if (network.detection.has_value()) {
    AddRawHeads(*network.detection, nodes, &graph);
  } else {
    AddClassification(network, nodes.back(), int64_t{1}, &graph);
  }
  return MakeModel(model, "raw", std::move(graph));
}

}  // namespace pushpull
