// A model to export whose weights all differ, and a reader for the exported model.
#ifndef PUSHPULL_TESTS_WORKER_EXPORT_EXPORT_TESTING_H_
#define PUSHPULL_TESTS_WORKER_EXPORT_EXPORT_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/file_system.h"
#include "protos/onnx.pb.h"
#include "protos/pipeline.pb.h"
#include "worker/export/inference_model.h"

namespace pushpull {

// Pipeline configs of a small classifier, with `classifier` (protobuf text) merged over it, and of
// a small detector.
config::TrainEvalPipelineConfig ClassifierConfig(const std::string& classifier = "");
config::TrainEvalPipelineConfig DetectorConfig(const std::string& feature_extractor_type,
                                               const std::string& ssd = "");

// A config of each kind of network, head and resizing that the exporter treats in its own way.
struct ExportCase {
  std::string name;
  config::TrainEvalPipelineConfig config;
};
std::vector<ExportCase> ExportCases();

// Random values that are valid for their kind: variances are positive, gammas are near 1. Kernels
// are scaled by their number of inputs, so that values keep their size through many layers.
std::vector<float> RandomValues(const VariableLayout& layout, uint64_t seed);

InferenceModel MakeInferenceModel(const config::TrainEvalPipelineConfig& config, uint64_t seed = 1);

// Returns the values of the network's outputs for one image, one output after the other, computed
// by the reference operators without training.
std::vector<float> Infer(const NetworkSpec& spec, const std::vector<float>& values,
                         const std::vector<float>& image, int64_t num_updates = 0);

struct TestCheckpoint {
  uint64_t step = 7;
  uint64_t updates = 7;
  uint64_t seed = 1;
  uint64_t ema_seed = 0;  // 0: no EMA
};
// Writes a checkpoint of RandomValues. CHECK-fails if it cannot be written.
void PublishTestCheckpoint(FileSystem& files, const std::string& directory,
                           const VariableLayout& layout, const TestCheckpoint& checkpoint);

// Returns null if there is no initializer of that name.
const onnx::TensorProto* FindInitializer(const onnx::GraphProto& graph, const std::string& name);
// Returns the node that produces the value, or null.
const onnx::NodeProto* FindProducer(const onnx::GraphProto& graph, const std::string& value);
// Returns the attribute's integers or its single integer. Empty if the node does not have the
// attribute.
std::vector<int64_t> Integers(const onnx::NodeProto& node, const std::string& attribute);
std::vector<float> Floats(const onnx::TensorProto& tensor);
std::vector<int64_t> Dimensions(const onnx::TensorProto& tensor);
// Returns a text such as "float[N,100,4]".
std::string TypeText(const onnx::ValueInfoProto& info);
// Returns the problems of the graph, one per line: values with no or two producers, constants of
// the wrong size or without a reader, and nodes whose form the interpreter does not know. Empty if
// there is no problem.
std::string Faults(const onnx::ModelProto& model);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EXPORT_EXPORT_TESTING_H_
