#include "worker/export/onnx_model.h"

#include <utility>

#include "worker/export/model_metadata.h"
#include "worker/export/onnx_detection.h"
#include "worker/export/onnx_graph.h"
#include "worker/export/onnx_network.h"
#include "worker/export/onnx_preprocessing.h"

namespace pushpull {
namespace {

void AddClassification(const NetworkSpec& network, const std::string& scores, OnnxGraph* graph) {
  const std::vector<OnnxDimension> shape = {"N", int64_t{network.num_classes}};
  graph->AddNode("Flatten", "logits", {scores}, {{"axis", int64_t{1}}});
  graph->AddNode("Softmax", "probabilities", {"logits"}, {{"axis", int64_t{1}}});
  graph->AddOutput("logits", onnx::TensorProto::FLOAT, shape);
  graph->AddOutput("probabilities", onnx::TensorProto::FLOAT, shape);
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
    AddClassification(model.network, nodes.back(), &graph);
  }

  onnx::ModelProto result;
  result.set_ir_version(kOnnxIrVersion);
  result.set_producer_name("pushpull");
  result.add_opset_import()->set_version(kOnnxOpset);
  *result.mutable_graph() = std::move(graph).Finish();
  for (const auto& [key, value] : DescribeModel(model)) {
    onnx::StringStringEntryProto* const entry = result.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  return result;
}

}  // namespace pushpull
