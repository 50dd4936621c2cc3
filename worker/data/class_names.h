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

// Returns the names indexed by label; an empty vector if there are none. The first that is set
// decides:
// 1. options.label_map. A class in a gap of a label map has an empty name.
// 2. The label_map_path of the eval_input_reader.
// 3. If the eval_input_reader reads an image folder: the class folders of the train_input_reader,
//    which gave the labels their meaning, or, if those are not there, of the eval_input_reader.
// The data that the config names need not be on this machine. If the label map or the folders
// cannot be read, or the folders are not as many as the model's classes, there are no names, and a
// warning says so. Errors as LabelMap::Load, for options.label_map only.
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

// Checks that the label maps of the train_input_reader and the eval_input_reader give no name two
// ids; otherwise detections would be compared with boxes of other classes. Reads both files. OK if
// either reader has no label map, or if one cannot be read, since training data need not be on this
// machine and the reader of the other one reports it. INVALID_ARGUMENT: a name has two ids; the
// message names it and both files.
absl::Status CheckLabelMaps(FileSystem& files, const config::TrainEvalPipelineConfig& config,
                            const std::string& data_dir);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_CLASS_NAMES_H_
