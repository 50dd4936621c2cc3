// Opens the checkpoint that a program applies or exports, such as exporter or detect.
#ifndef PUSHPULL_COMMON_CHECKPOINT_TRAINED_CHECKPOINT_H_
#define PUSHPULL_COMMON_CHECKPOINT_TRAINED_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Opens the checkpoint of `step` in `train_dir`, of whatever run. A negative `step` means the
// newest checkpoint of the run that the run_id file of `train_dir` names, or of any run if there is
// no such file. `layout`: of the model that the newest checkpoint must have; null: any model.
// `config` is what the caller uses; logs a warning if its model is not the one with which the
// checkpoint was trained. Blocks on the disk.
// Errors as OpenCheckpoint. DATA_LOSS also: the run_id file is malformed.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenTrainedCheckpoint(
    FileSystem& files, const std::string& train_dir, int64_t step, const VariableLayout* layout,
    const config::TrainEvalPipelineConfig& config);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_TRAINED_CHECKPOINT_H_
