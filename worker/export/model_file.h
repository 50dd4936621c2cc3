// A trained network as a file.
#ifndef PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_
#define PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "worker/export/inference_model.h"

namespace pushpull {

enum class ModelFormat { kOnnx, kSafetensors };

// By the ending: .onnx or .safetensors. INVALID_ARGUMENT names both.
absl::StatusOr<ModelFormat> ModelFormatOf(const std::string& path);

// "onnx" or "safetensors".
std::string ModelFormatName(ModelFormat format);

// The contents of the file. kOnnx: see onnx_model.h. kSafetensors: every variable under
// TensorFlow's name and in its shape, with DescribeModel as metadata. INVALID_ARGUMENT: the network
// has more than protobuf's 2 GiB.
absl::StatusOr<std::string> EncodeModel(const InferenceModel& model, ModelFormat format);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_
