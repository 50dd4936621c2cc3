// A model to export, with weights that differ everywhere, and a reader for what was exported.
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

// Pipeline configs of a small classifier (protobuf text merged over it) and a small detector.
config::TrainEvalPipelineConfig ClassifierConfig(const std::string& classifier = "");
config::TrainEvalPipelineConfig DetectorConfig(const std::string& feature_extractor_type,
                                               const std::string& ssd = "");

// Random values of the right kind: positive variances, gammas about 1.
std::vector<float> RandomValues(const VariableLayout& layout, uint64_t seed);

InferenceModel MakeInferenceModel(const config::TrainEvalPipelineConfig& config, uint64_t seed = 1);

struct TestCheckpoint {
  uint64_t step = 7;
  uint64_t updates = 7;
  uint64_t seed = 1;
  uint64_t ema_seed = 0;  // 0: no EMA
};
// Writes a checkpoint of RandomValues. CHECKs that it is written.
void PublishTestCheckpoint(FileSystem& files, const std::string& directory,
                           const VariableLayout& layout, const TestCheckpoint& checkpoint);

// Null when there is none of that name.
const onnx::TensorProto* FindInitializer(const onnx::GraphProto& graph, const std::string& name);
// The node that makes the value; null for none.
const onnx::NodeProto* FindProducer(const onnx::GraphProto& graph, const std::string& value);
// The attribute's integers, or its one integer; empty without it.
std::vector<int64_t> Integers(const onnx::NodeProto& node, const std::string& attribute);
std::vector<float> Floats(const onnx::TensorProto& tensor);
std::vector<int64_t> Dimensions(const onnx::TensorProto& tensor);
// "float[N,100,4]"
std::string TypeText(const onnx::ValueInfoProto& info);
// What is wrong with the graph, line by line: values that nothing makes or that two make, constants
// of the wrong size or that nothing reads, operators that opset 13 has not in this form. Empty when
// nothing is.
std::string Faults(const onnx::ModelProto& model);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EXPORT_EXPORT_TESTING_H_
