#include "common/cli/main_support.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "common/base/passing_error.h"
#include "common/cli/cpu_check.h"
#include "common/cli/exit_codes.h"
#include "common/wire/error_detail.h"

ABSL_FLAG(int, test_clones, 1, "a number");
ABSL_FLAG(bool, test_sync, true, "a switch");

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs InitMain on the arguments and exits 3 if it returns.
void Init(std::vector<std::string> arguments,
          const MainOptions& options = {.usage = "tests things"}) {
  std::vector<char*> argv = {const_cast<char*>("some/program")};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const MainArguments parsed = InitMain(static_cast<int>(argv.size()) - 1, argv.data(), options);
  if (absl::GetFlag(FLAGS_test_clones) != 1)
    std::fprintf(stderr, "clones %d\n", absl::GetFlag(FLAGS_test_clones));
  for (const std::string& argument : parsed.arguments)
    std::fprintf(stderr, "argument %s\n", argument.c_str());
  std::exit(parsed.check_config ? 4 : 3);
}

TEST(MainSupportDeathTest, InitMainReturnsWithValidFlags) {
  EXPECT_EXIT(Init({"--test_clones=5", "--notest_sync"}), ExitedWithCode(3), "clones 5");
  EXPECT_EXIT(Init({"--check_config"}), ExitedWithCode(4), "");
  EXPECT_EXIT(Init({"x", "--", "--y"}, {.usage = "", .takes_arguments = true}), ExitedWithCode(3),
              "argument x\nargument --y");
}

// Runs InitMain and prints what FlagsThatAreSet returns.
void PrintFlagsThatAreSet(std::vector<std::string> arguments) {
  std::vector<char*> argv = {const_cast<char*>("some/program")};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  InitMain(static_cast<int>(argv.size()) - 1, argv.data(), {.usage = "tests things"});
  for (const std::string& flag : FlagsThatAreSet()) std::fprintf(stderr, "%s\n", flag.c_str());
  std::exit(3);
}

TEST(MainSupportDeathTest, FlagsThatAreSetHaveTheirValuesWhereverTheyComeFrom) {
  const std::string file = absl::StrCat(testing::TempDir(), "/flags");
  PosixFileSystem files;
  ASSERT_EQ(WriteFileAtomically(files, file, "--log_level=warning\n--tls_ca=of the file\n"),
            absl::OkStatus());
  EXPECT_EXIT(PrintFlagsThatAreSet({"--tls_key", "a b", "--flagfile", file, "--insecure",
                                    "--noinsecure", "--tls_ca=", "--check_config", "--"}),
              ExitedWithCode(3), "^--check_config=true\n--log_level=warning\n--tls_key=a b\n$");
}

TEST(MainSupportDeathTest, UnknownFlagExits64WithASuggestion) {
  EXPECT_EXIT(Init({"--log_levle=info"}), ExitedWithCode(64),
              "program: unknown flag --log_levle; did you mean \"log_level\"");
}

TEST(MainSupportDeathTest, BadValuesExit64) {
  EXPECT_EXIT(Init({"--test_clones=many"}), ExitedWithCode(64), "test_clones");
  EXPECT_EXIT(Init({"--log_level=loud"}), ExitedWithCode(64),
              "expected info, warning or error, got \"loud\"");
  EXPECT_EXIT(Init({"--flagfile=/nonexistent/flags"}), ExitedWithCode(64), "");
}

TEST(MainSupportDeathTest, UnexpectedArgumentExits64) {
  EXPECT_EXIT(Init({"extra"}), ExitedWithCode(64), "unexpected argument \"extra\"");
}

TEST(MainSupportDeathTest, HelpAndVersionExit0) {
  EXPECT_EXIT(Init({"--help"}), ExitedWithCode(0), "");
  EXPECT_EXIT(Init({"--version"}), ExitedWithCode(0), "");
  EXPECT_EXIT(Init({"--help", "--test_clones=many"}), ExitedWithCode(0), "");
}

// Runs InitMain, writes a file that is larger than the process may write, and ends as a main does.
void WriteMoreThanTheLimit() {
  std::string program = "some/program";
  char* argv[] = {program.data(), nullptr};
  InitMain(1, argv, {.usage = "tests things"});
  const rlimit limit{4096, 4096};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::exit(3);
  PosixFileSystem files;
  const std::string path = absl::StrCat(testing::TempDir(), "/large");
  std::exit(FinishMain(WriteFileAtomically(files, path, std::string(8192, 'x'))));
}

TEST(MainSupportDeathTest, AFileLargerThanTheLimitOfFileSizesIsAnErrorAndNoSignal) {
  EXPECT_EXIT(WriteMoreThanTheLimit(), ExitedWithCode(65),
              "program: write .*large.*: File too large; raise .*ulimit -f");
}

// Closes the standard streams and runs InitMain. Exits with 0 if a new file gets another number,
// the log can be written, and results cannot.
void StartWithoutStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
  std::string program = "some/program";
  char* argv[] = {program.data(), nullptr};
  InitMain(1, argv, {.usage = "tests things"});
  const int file = ::open("/dev/null", O_RDONLY);
  const bool log = ::write(STDERR_FILENO, "x", 1) == 1;
  const bool results = ::write(STDOUT_FILENO, "x", 1) == 1;
  std::exit(file > STDERR_FILENO && log && !results ? 0 : 1);
}

TEST(MainSupportDeathTest, NoFileTakesThePlaceOfAClosedStream) {
  EXPECT_EXIT(StartWithoutStreams(), ExitedWithCode(0), "");
}

TEST(MainSupportTest, FindsAllUnknownFlags) {
  EXPECT_THAT(UnknownFlags({"--check_confg", "-zzzzzz=1", "--check_config", "word"}),
              ElementsAre(HasSubstr("--check_confg; did you mean \"check_config\"?"),
                          "unknown flag --zzzzzz"));
}

TEST(MainSupportTest, DoesNotTakeValuesUndefokOrDoubleDashForFlags) {
  EXPECT_THAT(UnknownFlags(
                  {"--log_level", "--odd", "--undefok=abc,def", "--abc=1", "--def", "--", "--ghi"}),
              IsEmpty());
  EXPECT_THAT(UnknownFlags({"--nocheck_config", "--help", "--flagfile=f"}), IsEmpty());
}

TEST(ExitCodesTest, StatusesMapToTheDocumentedExitCodes) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(UsageError("x")), 64);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), 65);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("x")), 65);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("x")), 65);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), 66);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), 70);
  EXPECT_EQ(ExitCodeOf(absl::UnknownError("x")), 70);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("x")), 143);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), 200);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("x")), 200);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("x")), 200);
  EXPECT_EQ(ExitCodeOf(WithExitCode(absl::CancelledError("x"), kExitBadInput)), 65);
}

TEST(ExitCodesTest, TheDetailOfAnErrorOfTheJobDecidesBeforeItsStatusCode) {
  const auto error_of = [](ps::ErrorDetail::Kind kind) {
    ps::ErrorDetail detail;
    detail.set_kind(kind);
    return MakeError(detail, "x");
  };
  const absl::Status stopped = error_of(ps::ErrorDetail::STOPPED);
  EXPECT_EQ(ExitCodeOf(stopped), 70);
  EXPECT_EQ(ExitCodeOf(Annotated(stopped, "y")), 70);
  EXPECT_EQ(ExitCodeOf(MarkPassing(stopped)), 70) << "training does not go on";
  EXPECT_EQ(ExitCodeOf(WithExitCode(stopped, kExitGpuLost)), 201) << "the explicit code wins";
  EXPECT_EQ(ExitCodeOf(error_of(ps::ErrorDetail::EVICTED)), 77);
  EXPECT_EQ(ExitCodeOf(error_of(ps::ErrorDetail::DRAINING)), 200);
  EXPECT_EQ(ExitCodeOf(MarkPassing(error_of(ps::ErrorDetail::JOB_CHANGED))), 202);
}

TEST(ExitCodesTest, ErrorsThatMayPassGive200) {
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("x")), 65);
  for (const absl::Status& status : {absl::InternalError("x"), absl::ResourceExhaustedError("x"),
                                     absl::PermissionDeniedError("x")}) {
    const absl::Status marked = MarkPassing(status);
    EXPECT_EQ(ExitCodeOf(marked), 200) << status;
    EXPECT_EQ(ExitCodeOf(Annotated(Annotated(marked, "y"), "z")), 200) << status;
    EXPECT_EQ(ExitCodeOf(WithExitCode(marked, kExitMissingInput)), 66) << "the explicit code wins";
  }
}

TEST(CpuCheckTest, TheMachineThatRunsTheTestsQualifies) { EXPECT_EQ(MissingCpuFeature(), nullptr); }

}  // namespace
}  // namespace pushpull
