// Reads pipeline configs, which are protobuf text of the schema protos/pipeline.proto. Thread-safe
// functions.
#ifndef PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_
#define PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

// The file in a train_dir to which ps_server writes its config.
inline constexpr char kTrainDirConfigName[] = "pipeline.config";

// Reads and parses the file at `path`. It does not check values; programs call LoadValidConfig and
// ParseValidConfig (validate_config.h), which do.
//
// Blocks on the disk, and on a pipe until its writer closes it; a pipe that has no writer for 2 s
// counts as empty. NOT_FOUND: the file does not exist. PERMISSION_DENIED: this process may not
// read it. INTERNAL: it cannot be read now, which may pass (common/base/passing_error.h).
// INVALID_ARGUMENT: it cannot be read for another reason, is empty, is no protobuf text of the
// schema, is larger than 1 MiB, or nests messages more than 100 deep (the limits bound the parser's
// time and stack). The message lists every unknown field or extension and the first syntax error
// with file, line, column and field, and suggests a similar name. It lists up to kMaxListedProblems
// problems and counts the rest.
absl::StatusOr<config::TrainEvalPipelineConfig> LoadPipelineConfig(const std::string& path);

// Parses text that is not from a file, for example from the server's reply. Messages show `name` in
// place of the file. INVALID_ARGUMENT as for LoadPipelineConfig.
absl::StatusOr<config::TrainEvalPipelineConfig> ParsePipelineConfig(const std::string& text,
                                                                    absl::string_view name);

// Returns the config as text for --check_config, with every default written out that applies to a
// message in it. The text is a config that means the same as `config`, and is valid if `config` is.
// Fields that are (unsupported) or have (no_effect) in the schema are left out, and so are unset
// fields that are (unset_differs).
std::string EffectiveConfigText(const config::TrainEvalPipelineConfig& config);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_
