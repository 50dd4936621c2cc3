#include "tests/ps_server/warm_start/read_tensors.h"

#include <vector>

#include "common/base/status_macros.h"
#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

absl::Status ReadAllTensors(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const auto source, OpenTensorSource(files, path));
  for (const SourceTensor& tensor : source->tensors()) {
    if (!tensor.unusable.empty()) continue;
    std::vector<float> values(tensor.num_elements());
    PP_RETURN_IF_ERROR(source->Read(tensor, absl::MakeSpan(values)));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
