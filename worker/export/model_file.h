// Encodes a trained network as the contents of a file. Thread-safe functions.
#ifndef PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_
#define PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "worker/export/inference_model.h"

namespace pushpull {

enum class ModelFormat { kOnnx, kOnnxRawHeads, kSafetensors };

// Returns the format for the ending of `path`, kOnnx or kSafetensors. INVALID_ARGUMENT: the ending
// is neither .onnx nor .safetensors.
absl::StatusOr<ModelFormat> ModelFormatOf(const std::string& path);

// Returns "onnx" or "safetensors".
std::string ModelFormatName(ModelFormat format);

// Returns the contents of the file. onnx_model.h describes kOnnx (BuildOnnxModel) and kOnnxRawHeads
// (BuildRawHeadsModel). A kSafetensors file has every variable with TensorFlow's name and shape,
// and DescribeModel as metadata. INVALID_ARGUMENT: an ONNX model would be larger than 2 GiB, the
// limit of protobuf.
absl::StatusOr<std::string> EncodeModel(const InferenceModel& model, ModelFormat format);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_MODEL_FILE_H_
