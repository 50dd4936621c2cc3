// What every main does first and last: flags, logging, usage, exit code. Main thread only.
#ifndef PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_
#define PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

struct MainOptions {
  std::string usage = {};                   // first line of --help: what the program does
  std::vector<std::string> libraries = {};  // for --version, beside protobuf: "gRPC 1.51.1"
  bool takes_arguments = false;             // besides flags
};

struct MainArguments {
  std::vector<std::string> arguments;  // besides flags
  bool check_config = false;           // --check_config: validate, print the effective config, exit
};

// Parses Abseil flags, sets up glog to stderr by --log_level. Does not return for --help and
// --version (exit code 0) and for bad flags (64, naming an unknown flag's nearest neighbour).
MainArguments InitMain(int argc, char** argv, const MainOptions& options);

// Of the build: "0.1.0+1a2b3c4".
absl::string_view BuildVersion();

// Prints the error, if any, on stderr and returns the exit code for main to return.
int FinishMain(const absl::Status& status);

// The end of --check_config: prints the effective config on stdout if `status` (of
// CheckPipelineConfig) is OK, else as FinishMain.
int FinishCheckConfig(const config::TrainEvalPipelineConfig& config, const absl::Status& status);

// One line for each unknown flag in argv, with a suggestion; flags after "--" and those named by
// --undefok are left alone. InitMain's part that a test can call.
std::vector<std::string> UnknownFlags(const std::vector<std::string>& arguments);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_
