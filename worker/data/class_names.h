// Finds names for the classes of a trained model, to show them to people.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_CLASS_NAMES_H_
#define PUSHPULL_WORKER_DATA_CLASS_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

struct ClassNameOptions {
  std::string label_map;  // path of a label map; empty: the one of the config's eval_input_reader
  std::string data_dir;   // prefix of relative paths in the config; may be empty
};

// Returns the names indexed by label; a class in a gap of the label map has an empty name. Without
// a label map they are the class folders of the eval_input_reader if that reads an image folder, or
// better those of the train_input_reader, which gave the labels their meaning, if they are there.
// Returns an empty vector if there are no names. The data that the config names need not be on this
// machine: if they are missing or do not fit, there are no names, and a warning says so. Errors as
// LabelMap::Load for options.label_map only.
absl::StatusOr<std::vector<std::string>> FindClassNames(
    FileSystem& files, const config::TrainEvalPipelineConfig& config,
    const ClassNameOptions& options);

// Checks that `eval_names`, the class folders of the eval_input_reader in the order of the labels,
// are those of the train_input_reader; otherwise labels would mean other classes than in training.
// Lists one folder. OK if either reader reads no image folder, or if the folder of the
// train_input_reader cannot be listed, since training data need not be on this machine.
// INVALID_ARGUMENT: they differ; the message names the first difference.
absl::Status CheckClassFolders(const config::TrainEvalPipelineConfig& config,
                               const std::string& data_dir,
                               const std::vector<std::string>& eval_names);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_CLASS_NAMES_H_
