// Checks the values of a pipeline config before anything is started. Whatever a program does with a
// config, it gets it from LoadValidConfig or ParseValidConfig. The code that uses the result relies
// on the limits and does not check the fields again. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_VALIDATE_CONFIG_H_
#define PUSHPULL_COMMON_CONFIG_VALIDATE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/config/config_problem.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Settings from flags that the checks depend on, as far as the caller knows them.
struct ConfigContext {
  std::optional<bool> sync;  // --sync; nullopt: train_config.sync_replicas decides
  int64_t num_clones = 0;    // per worker; 0: unknown, skips the checks that need it
  int64_t num_workers = 1;
  // --data_dir, the prefix of relative input paths. Empty: the working directory.
  std::string data_dir;
  // Which reader's files must exist on this machine. The checks do not look for other files.
  bool check_train_input = false;
  bool check_eval_input = false;
  // Whether the program can work with a model that Pushpull does not implement (model.external). If
  // not, such a config is refused, so BuildNetworkSpec (common/model/model_layout.h) never meets
  // it.
  bool external_models = false;
  bool log_warnings = true;  // by LoadValidConfig and ParseValidConfig
};

struct ConfigReport {
  std::vector<ConfigProblem> problems;
  std::vector<std::string> warnings;  // one sentence each, which names the field

  // Returns ProblemsToStatus(name, problems). `name` is the path of the config.
  absl::Status ToStatus(absl::string_view name) const;
};

// Returns all problems and warnings of `config`. It reads no files, but tests whether input paths
// exist where `context` asks for it.
ConfigReport ValidatePipelineConfig(const config::TrainEvalPipelineConfig& config,
                                    const ConfigContext& context);

// Reads the config at `path` and validates it. Errors as LoadPipelineConfig; the code of
// ProblemsToStatus if the config has problems, with a message that lists all of them.
absl::StatusOr<config::TrainEvalPipelineConfig> LoadValidConfig(const std::string& path,
                                                                const ConfigContext& context);

// Returns the config that ps_server has written to its `train_dir`, for a program that applies or
// exports what was trained. Errors as LoadValidConfig, except that the message of NOT_FOUND says
// what the folder should be.
absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfigOfTrainDir(const std::string& train_dir);

// As LoadValidConfig, for text that is not from a file, for example from the server's reply.
// Messages show `name` in place of the path.
absl::StatusOr<config::TrainEvalPipelineConfig> ParseValidConfig(const std::string& text,
                                                                 const ConfigContext& context,
                                                                 absl::string_view name);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_VALIDATE_CONFIG_H_
