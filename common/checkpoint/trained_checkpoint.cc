#include "common/checkpoint/trained_checkpoint.h"

#include <optional>

#include "common/base/status_macros.h"
#include "common/checkpoint/train_dir.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenTrainedCheckpoint(FileSystem& files,
                                                                  const std::string& train_dir,
                                                                  int64_t step,
                                                                  const VariableLayout* layout) {
  RecoveryRequest request;
  request.layout = layout;
  if (step < 0) {
    PP_ASSIGN_OR_RETURN(const std::optional<std::string> run_id, ReadRunId(files, train_dir));
    request.run_id = run_id.value_or("");
  }
  return OpenCheckpoint(files, train_dir, step, request);
}

}  // namespace pushpull
