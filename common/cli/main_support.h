// The first and the last steps of every main function: flags, logging, limit of open files, usage
// and exit code. For the main thread only.
#ifndef PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_
#define PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

struct MainOptions {
  std::string usage = {};                   // first line of --help: what the program does
  std::vector<std::string> libraries = {};  // for --version, which adds protobuf: "gRPC 1.51.1"
  bool takes_arguments = false;             // the program takes arguments besides flags
};

struct MainArguments {
  std::vector<std::string> arguments;  // the arguments that are not flags
  bool check_config = false;           // --check_config: validate, print the effective config, exit
};

// Parses the Abseil flags and sets up glog to log to stderr at --log_level. Lets the process open
// as many files as the hard limit allows, ignores the signal that would kill it when a file exceeds
// the limit of file sizes, and opens /dev/null in the place of standard streams that are closed.
// Ends the process for --help and --version (exit code 0) and for bad flags (exit code 64, with a
// suggestion for an unknown flag).
MainArguments InitMain(int argc, char** argv, const MainOptions& options);

// Returns the flags of the project's sources whose values are not their defaults, in the order of
// their names, each as "--name=value". A program that starts itself with them has the same flags,
// wherever the first process has read them: its arguments, --flagfile or --fromenv.
std::vector<std::string> FlagsThatAreSet();

// Returns the version of the build, for example "0.1.0+1a2b3c4".
absl::string_view BuildVersion();

// Prints the error, if any, on stderr. Returns the exit code that main must return.
int FinishMain(const absl::Status& status);

// What --check_config does: prints the effective config on stdout if `config`, the result of
// LoadValidConfig, is OK. Returns the error of `config` or of printing.
absl::Status PrintEffectiveConfig(const absl::StatusOr<config::TrainEvalPipelineConfig>& config);

// Returns one line for each unknown flag in `arguments`, with a suggestion. Ignores flags after
// "--" and those that --undefok names. A part of InitMain, declared for tests.
std::vector<std::string> UnknownFlags(const std::vector<std::string>& arguments);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_MAIN_SUPPORT_H_
