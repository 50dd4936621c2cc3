// Notices that the pipeline.config of a train_dir asks for another evaluation than when it was
// loaded. A server that is started again may write another one.
//
// Thread rule: ConfigWatcher is not thread-safe, EvaluationDigest is.
#ifndef PUSHPULL_WORKER_EVAL_CONFIG_WATCHER_H_
#define PUSHPULL_WORKER_EVAL_CONFIG_WATCHER_H_

#include <string>

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns a digest of what in the config can change a metric, as 64 hex digits: `model`,
// `eval_input_reader`, and `eval_config` without the fields of images, exported files and times. A
// default that is written out gives another digest.
std::string EvaluationDigest(const config::TrainEvalPipelineConfig& config);

class ConfigWatcher {
 public:
  // `loaded` is what was read from the file at `path`. `files` must outlive the watcher.
  ConfigWatcher(FileSystem* files, std::string path, const config::TrainEvalPipelineConfig& loaded);

  const std::string& path() const { return path_; }

  // Reads the file and returns the first difference in `model`, `eval_config` or
  // `eval_input_reader`, as DescribeConfigDifference does. Empty: these are as they were loaded, or
  // the file cannot be read or parsed now. Blocks on the disk.
  std::string DescribeChange();

 private:
  FileSystem* const files_;
  const std::string path_;
  const config::TrainEvalPipelineConfig loaded_;  // the three parts
  std::string same_text_;                         // the last text of the file without a difference
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_CONFIG_WATCHER_H_
