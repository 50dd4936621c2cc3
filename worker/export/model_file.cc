#include "worker/export/model_file.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors.h"
#include "worker/export/model_metadata.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

absl::StatusOr<std::string> EncodeOnnx(const onnx::ModelProto& proto) {
  if (proto.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ONNX model would have ", proto.ByteSizeLong(),
                     " bytes, more than the 2 GiB of a protobuf message; export .safetensors"));
  }
  return proto.SerializeAsString();
}

absl::StatusOr<std::string> EncodeSafetensors(const InferenceModel& model) {
  SafetensorsHeader header;
  header.metadata = DescribeModel(model);
  for (const VariableSpec& variable : model.layout.variables()) {
    SafetensorsTensor tensor;
    tensor.name = variable.name;
    tensor.shape = variable.shape;
    header.tensors.push_back(std::move(tensor));
  }
  PP_ASSIGN_OR_RETURN(std::string contents, EncodeSafetensorsHeader(&header));
  for (const SafetensorsTensor& tensor : header.tensors) {
    contents.append(reinterpret_cast<const char*>(ValuesOf(model, tensor.name).data()),
                    tensor.size_bytes());
  }
  return contents;
}

}  // namespace

absl::StatusOr<ModelFormat> ModelFormatOf(const std::string& path) {
  if (absl::EndsWith(path, ".onnx")) return ModelFormat::kOnnx;
  if (absl::EndsWith(path, ".safetensors")) return ModelFormat::kSafetensors;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path, "\" has to end with .onnx or .safetensors: it says the format"));
}

std::string ModelFormatName(ModelFormat format) {
  return format == ModelFormat::kSafetensors ? "safetensors" : "onnx";
}

absl::StatusOr<std::string> EncodeModel(const InferenceModel& model, ModelFormat format) {
  switch (format) {
    case ModelFormat::kOnnx:
      return EncodeOnnx(BuildOnnxModel(model));
    case ModelFormat::kOnnxRawHeads:
      return EncodeOnnx(BuildRawHeadsModel(model));
    case ModelFormat::kSafetensors:
      return EncodeSafetensors(model);
  }
  return absl::InternalError("unknown model format");
}

}  // namespace pushpull
