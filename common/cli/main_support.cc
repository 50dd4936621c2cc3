#include "common/cli/main_support.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

#include "common/base/descriptor_limit.h"
#include "common/base/status_macros.h"
#include "common/cli/cpu_check.h"
#include "common/cli/exit_codes.h"
#include "common/cli/print_result.h"
#include "common/config/nearest_name.h"
#include "common/config/pipeline_config.h"

ABSL_FLAG(std::string, log_level, "info",
          "least severe messages to log on stderr: info, warning or error");
ABSL_FLAG(
    bool, check_config, false,
    "ps_server, evaluator, exporter and detect: check all fields of the config, print it with "
    "its defaults and exit; only the evaluator looks for the data. The other programs read no "
    "pipeline config and refuse this flag");

namespace pushpull {
namespace {

// Flags that Abseil handles although they are not registered, so FindCommandLineFlag does not know
// them.
constexpr absl::string_view kUsageFlags[] = {"help",   "helpfull",  "helpshort", "helppackage",
                                             "helpon", "helpmatch", "version",   "only_check_args"};

std::string program_name;  // written once, before any other thread starts

// Abseil's parser ends the process itself, with 1 both for bad flags and for --help. An atexit
// handler changes this to the project's exit codes (exit_codes.h).
bool parsing_flags = false;
bool usage_asked_for = false;

void TranslateExitOfFlagParser() {
  if (!parsing_flags) return;
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  ::_exit(usage_asked_for ? kExitDone : kExitUsage);
}

bool IsUsageFlag(absl::string_view name) {
  for (absl::string_view flag : kUsageFlags) {
    if (name == flag) return true;
  }
  return false;
}

// Returns the name in "--name=value", "-name" or "--name", and "" for anything else.
absl::string_view FlagName(absl::string_view argument) {
  if (!absl::ConsumePrefix(&argument, "-")) return "";
  absl::ConsumePrefix(&argument, "-");
  return argument.substr(0, argument.find('='));
}

const absl::CommandLineFlag* FindFlag(absl::string_view name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  if (flag != nullptr || !absl::ConsumePrefix(&name, "no")) return flag;
  flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->IsOfType<bool>() ? flag : nullptr;
}

bool IsOurSource(absl::string_view file) {
  return absl::EndsWith(file, "_main.cc") || absl::StrContains(file, "common/cli/") ||
         absl::StrContains(file, "worker/cli/");
}

// Returns the path of a source file within the project, for example "worker/worker_main.cc".
std::string ProjectPath(absl::string_view file) {
  for (absl::string_view folder : {"/common/", "/worker/", "/ps_server/", "/scripts/"}) {
    const size_t at = file.rfind(folder);
    if (at != absl::string_view::npos) return std::string(file.substr(at + 1));
  }
  return std::string(file);
}

std::string VersionText(const MainOptions& options) {
  std::vector<std::string> libraries = options.libraries;
  libraries.push_back(absl::StrCat("protobuf ", GOOGLE_PROTOBUF_VERSION / 1000000, ".",
                                   GOOGLE_PROTOBUF_VERSION / 1000 % 1000, ".",
                                   GOOGLE_PROTOBUF_VERSION % 1000));
  return absl::StrCat(program_name, " ", BuildVersion(), " (", absl::StrJoin(libraries, ", "),
                      ")\n");
}

// Opens /dev/null in the place of each standard stream that is closed. A pipe or a file that is
// opened later would get its number, and with it the log or the results. What is written to stdout
// still fails, so that lost results are an error.
void OpenClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is that of the stream.
    if (::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

void SetUpLogging(const char* argv0) {
  const std::string level = absl::GetFlag(FLAGS_log_level);
  if (level != "info" && level != "warning" && level != "error") {
    std::cerr << program_name << ": --log_level: expected info, warning or error, got \"" << level
              << "\"\n";
    std::exit(kExitUsage);
  }
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = level == "info"      ? google::GLOG_INFO
                      : level == "warning" ? google::GLOG_WARNING
                                           : google::GLOG_ERROR;
  google::InitGoogleLogging(argv0);
}

}  // namespace

absl::string_view BuildVersion() { return PUSHPULL_VERSION; }

std::vector<std::string> UnknownFlags(const std::vector<std::string>& arguments) {
  std::set<std::string> allowed;
  for (const std::string& argument : arguments) {
    if (FlagName(argument) != "undefok") continue;
    const std::vector<std::string> names =
        absl::StrSplit(argument.substr(argument.find('=') + 1), ',');
    allowed.insert(names.begin(), names.end());
  }
  std::vector<std::string> known;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurSource(flag->Filename())) known.push_back(std::string(name));
  }
  std::vector<std::string> unknown;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const absl::string_view name = FlagName(arguments[i]);
    if (name.empty() || IsUsageFlag(name) || allowed.count(std::string(name)) > 0) continue;
    const absl::CommandLineFlag* flag = FindFlag(name);
    if (flag == nullptr) {
      unknown.push_back(absl::StrCat("unknown flag --", name, DidYouMean(name, known)));
    } else if (!absl::StrContains(arguments[i], "=") && !flag->IsOfType<bool>()) {
      ++i;  // "--name value"
    }
  }
  return unknown;
}

MainArguments InitMain(int argc, char** argv, const MainOptions& options) {
  OpenClosedStreams();
  RequireCpuFeatures();
  program_name = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  const std::vector<std::string> given(argv + 1, argv + argc);
  const std::vector<std::string> unknown = UnknownFlags(given);
  if (!unknown.empty()) {
    for (const std::string& line : unknown) std::cerr << program_name << ": " << line << "\n";
    std::cerr << program_name << ": --help lists the flags\n";
    std::exit(kExitUsage);
  }
  for (const std::string& argument : given) {
    if (argument == "--") break;
    usage_asked_for = usage_asked_for || IsUsageFlag(FlagName(argument));
  }
  absl::SetProgramUsageMessage(options.usage);
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = IsOurSource;
  usage.contains_helpshort_flags = IsOurSource;
  usage.version_string = [options] { return VersionText(options); };
  usage.normalize_filename = ProjectPath;
  absl::SetFlagsUsageConfig(usage);

  parsing_flags = true;
  std::atexit(TranslateExitOfFlagParser);
  const std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  parsing_flags = false;

  MainArguments result;
  result.arguments.assign(positional.begin() + 1, positional.end());
  result.check_config = absl::GetFlag(FLAGS_check_config);
  if (!options.takes_arguments && !result.arguments.empty()) {
    std::cerr << program_name << ": unexpected argument \"" << result.arguments[0]
              << "\"; flags begin with -- and take their value after =\n";
    std::exit(kExitUsage);
  }
  SetUpLogging(argv[0]);
  RaiseDescriptorLimit();  // a data set of a thousand files keeps as many open
  // A write beyond the limit of file sizes (ulimit -f) then returns an error, which names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  return result;
}

std::vector<std::string> FlagsThatAreSet() {
  std::vector<std::string> set;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsOurSource(flag->Filename())) continue;
    const std::string value = flag->CurrentValue();
    if (value != flag->DefaultValue()) set.push_back(absl::StrCat("--", name, "=", value));
  }
  std::sort(set.begin(), set.end());
  return set;
}

int FinishMain(const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  if (code != kExitDone) std::cerr << program_name << ": " << status.message() << std::endl;
  return code;
}

absl::Status PrintEffectiveConfig(const absl::StatusOr<config::TrainEvalPipelineConfig>& config) {
  PP_RETURN_IF_ERROR(config.status());
  return PrintResult(std::cout, EffectiveConfigText(*config));
}

}  // namespace pushpull
