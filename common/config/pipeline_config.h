// Reads the pipeline config (protobuf text, protos/pipeline.proto). Functions only; thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_
#define PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

// NOT_FOUND: no such file. INVALID_ARGUMENT: not protobuf text of the schema; every unknown field
// and the first syntax error are listed with file, line, column and field, and a name that comes
// close (of more than kMaxListedProblems the rest is counted). The same for a config of more than
// 1 MiB or with messages more than 100 deep, so that neither time nor stack depends on who wrote
// it. Whether the values make sense is for ValidatePipelineConfig.
absl::StatusOr<config::TrainEvalPipelineConfig> LoadPipelineConfig(const std::string& path);

// The same for text from elsewhere (the server's reply); `name` stands for the file in messages.
absl::StatusOr<config::TrainEvalPipelineConfig> ParsePipelineConfig(const std::string& text,
                                                                    absl::string_view name);

// The config as text with every default of its messages written out, for --check_config. Fields
// that are not built or have no effect are left out.
std::string EffectiveConfigText(const config::TrainEvalPipelineConfig& config);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_PIPELINE_CONFIG_H_
