#include "worker/train/supervisor.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"
#include "worker/train/clone_report_codec.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Runs a shell script per clone, with $CLONE and $DIR set. $GPU is "new", or "on " and the GPU of
// the clone's last report.
class SupervisorTest : public ::testing::Test {
 protected:
  int Run(const std::string& script, int num_clones = 1) {
    SteadyClock clock;
    return Run(script, Options(num_clones), &clock);
  }
  int Run(const std::string& script, SupervisorOptions options, Clock* clock) {
    options.command = [this, script](int clone, const CloneState& state) {
      const std::string gpu = state.reported ? absl::StrCat("on ", state.report.gpu) : "new";
      return std::vector<std::string>{
          "/bin/sh", "-c",
          absl::StrCat("CLONE=", clone, "; DIR=", folder_.path(), "; GPU='", gpu, "'; ", script)};
    };
    Supervisor supervisor(options, clock, &signal_, [this](const std::vector<CloneState>& states) {
      states_ = states;
      if (on_progress_) on_progress_();
    });
    return supervisor.Run();
  }
  static SupervisorOptions Options(int num_clones = 1) {
    SupervisorOptions options;
    options.num_clones = num_clones;
    options.permanent_exit_codes = {65};
    options.leaving_exit_codes = {77};
    options.initial_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(5);
    options.max_rapid_deaths = 4;
    options.drain_timeout = absl::Seconds(20);
    options.poll_period = absl::Milliseconds(2);
    return options;
  }
  std::string Contents(const std::string& name) {
    return ReadWholeFile(files_, folder_.path() + "/" + name).value_or("");
  }

  TestFolder folder_;
  PosixFileSystem files_;
  std::atomic<int> signal_{0};
  std::vector<CloneState> states_;
  std::function<void()> on_progress_;
};

TEST_F(SupervisorTest, EndsWhenAllClonesHaveEnded) {
  EXPECT_EQ(Run("echo $CLONE > $DIR/$CLONE", 3), 0);
  for (const char* clone : {"0", "1", "2"}) EXPECT_EQ(Contents(clone), absl::StrCat(clone, "\n"));
}

TEST_F(SupervisorTest, RestartsADeadClone) {
  EXPECT_EQ(Run("echo x >> $DIR/starts; "
                "case $(wc -l < $DIR/starts) in 1) exit 1;; 2) kill -9 $$;; esac"),
            0);
  EXPECT_EQ(Contents("starts"), "x\nx\nx\n");
  ASSERT_EQ(states_.size(), 1);
  EXPECT_EQ(states_[0].deaths, 2);
  EXPECT_EQ(states_[0].last_death, "killed by signal 9");
}

TEST_F(SupervisorTest, TheNextProcessIsToldOfTheGpuOfTheOnesBefore) {
  CloneReport report;
  report.gpu = "GPU-5a";
  EXPECT_EQ(
      Run(absl::StrCat("echo $GPU >> $DIR/gpus; case $(wc -l < $DIR/gpus) in 1) exit 1;; 2) echo '",
                       EncodeCloneReport(report), "' >&3; exit 1;; 3) exit 1;; esac")),
      0);
  EXPECT_EQ(Contents("gpus"), "new\nnew\non GPU-5a\non GPU-5a\n");
}

TEST_F(SupervisorTest, ExecutesTheProgramThatTheOptionsName) {
  SupervisorOptions options = Options();
  options.program = "/bin/true";
  SteadyClock clock;
  EXPECT_EQ(Run("exit 65", options, &clock), 0);
}

TEST_F(SupervisorTest, NoticesTheEndOfACloneIfSigchldWasIgnored) {
  struct sigaction before;
  ASSERT_EQ(sigaction(SIGCHLD, nullptr, &before), 0);
  ASSERT_NE(signal(SIGCHLD, SIG_IGN), SIG_ERR);
  EXPECT_EQ(Run("echo x >> $DIR/starts; test $(wc -l < $DIR/starts) = 2"), 0);
  EXPECT_EQ(Contents("starts"), "x\nx\n");
  ASSERT_EQ(sigaction(SIGCHLD, &before, nullptr), 0);
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kChecksPointers = true;
#else
constexpr bool kChecksPointers = false;
#endif

// Leaves this process no more descriptors than it has, until the destructor. Tests that use it are
// skipped with sanitizers, whose checks of pointers open pipes.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    PCHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    PCHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoMoreDescriptors() { PCHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }

 private:
  rlimit before_;
};

TEST_F(SupervisorTest, TriesAgainWhenAProcessCannotBeStarted) {
  if (kChecksPointers) GTEST_SKIP() << "a sanitizer needs descriptors";
  auto full = std::make_unique<NoMoreDescriptors>();
  int looks = 0;
  on_progress_ = [&] {
    EXPECT_TRUE(states_[0].phase == CloneState::Phase::kRestarting || full == nullptr);
    if (++looks == 2) full.reset();
  };
  EXPECT_EQ(Run("echo x >> $DIR/starts"), 0);
  EXPECT_GE(looks, 2);
  EXPECT_EQ(Contents("starts"), "x\n");
}

TEST_F(SupervisorTest, GivesUpWhenNoProcessCanBeStarted) {
  if (kChecksPointers) GTEST_SKIP() << "a sanitizer needs descriptors";
  const NoMoreDescriptors full;
  EXPECT_EQ(Run("true"), 70);
}

TEST_F(SupervisorTest, APermanentFailureStopsAllClones) {
  EXPECT_EQ(Run("trap 'echo stopped > $DIR/stopped; exit 143' TERM; touch $DIR/ready.$CLONE; "
                "if [ $CLONE = 1 ]; then "
                "  while [ ! -e $DIR/ready.0 ]; do sleep 0.01; done; exit 65; "
                "fi; while :; do sleep 0.01; done",
                2),
            65);
  EXPECT_EQ(Contents("stopped"), "stopped\n");
}

TEST_F(SupervisorTest, DoesNotRestartACloneThatLeavesAndKeepsTheOthers) {
  EXPECT_EQ(
      Run("echo x >> $DIR/starts.$CLONE; if [ $CLONE = 1 ]; then touch $DIR/left; exit 77; fi; "
          "while [ ! -e $DIR/left ]; do sleep 0.01; done; sleep 0.1",
          3),
      0);
  EXPECT_EQ(Contents("starts.1"), "x\n");
  ASSERT_EQ(states_.size(), 3);
  EXPECT_EQ(states_[1].phase, CloneState::Phase::kLeft);
  EXPECT_EQ(states_[2].phase, CloneState::Phase::kDone);
}

// Code 200 says that a restart of the worker may help.
TEST_F(SupervisorTest, SaysOfEveryPermanentCodeThatACloneIsNotStartedAgain) {
  for (const int code : {65, 200}) {
    SupervisorOptions options = Options();
    options.permanent_exit_codes = {65, 200};
    SteadyClock clock;
    testing::internal::CaptureStderr();
    EXPECT_EQ(Run(absl::StrCat("exit ", code), options, &clock), code);
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr(absl::StrCat("clone 0 ended with exit code ", code,
                               ", after which a clone is not started again; stopping all")));
  }
}

TEST_F(SupervisorTest, ReportsThatAllClonesHaveLeft) { EXPECT_EQ(Run("exit 77", 2), 77); }

TEST_F(SupervisorTest, PassesTheSignalOn) {
  on_progress_ = [this] {
    if (files_.GetInfo(folder_.path() + "/ready").ok()) signal_.store(SIGTERM);
  };
  EXPECT_EQ(Run("trap 'echo stopped > $DIR/stopped; exit 143' TERM; touch $DIR/ready; "
                "while :; do sleep 0.01; done"),
            128 + SIGTERM);
  EXPECT_EQ(Contents("stopped"), "stopped\n");
}

TEST_F(SupervisorTest, ReadsTheReportsOfClonesThatItHasToldToEnd) {
  on_progress_ = [this] {
    if (files_.GetInfo(folder_.path() + "/ready").ok()) signal_.store(SIGTERM);
  };
  CloneReport last;
  last.step = 12;
  EXPECT_EQ(Run(absl::StrCat("trap \"echo '", EncodeCloneReport(last),
                             "' >&3; exit 143\" TERM; touch $DIR/ready; ",
                             "while :; do sleep 0.01; done")),
            128 + SIGTERM);
  ASSERT_EQ(states_.size(), 1);
  EXPECT_EQ(states_[0].report.step, 12);
}

TEST_F(SupervisorTest, GivesUpOnACloneThatKeepsDying) {
  EXPECT_EQ(Run("echo x >> $DIR/starts; exit 3"), 70);
  EXPECT_EQ(Contents("starts"), "x\nx\nx\nx\n");
}

TEST_F(SupervisorTest, GivingUpKeepsACodeThatSaysThatARestartMayHelp) {
  EXPECT_EQ(Run("exit 201"), 201);
}

// A second run starts the clones in their sessions, with what the first one has reported.
TEST_F(SupervisorTest, AnExitCodeThatConcernsAllClonesEndsARunAfterWhichAnotherMayFollow) {
  SupervisorOptions options = Options(2);
  options.renewing_exit_codes = {202};
  options.command = [this](int clone, const CloneState& state) {
    CloneReport report;
    report.gpu = absl::StrCat("GPU-", clone);
    const std::string first = absl::StrCat(
        "printf %s '", EncodeCloneReport(report), "' >&3; touch reported.", clone, "; ",
        clone == 0 ? "while [ ! -e reported.1 ]; do sleep 0.01; done; exit 202"
                   : "while :; do sleep 0.01; done");
    return std::vector<std::string>{
        "/bin/sh", "-c",
        absl::StrCat("cd ", folder_.path(), "; echo ", clone, state.report.gpu, " >> starts; ",
                     "od -An -v -t u8 -N 16 <&3 >> identity.", clone, "; ",
                     state.reported ? "exit 0" : first)};
  };
  SteadyClock clock;
  Supervisor supervisor(options, &clock, &signal_, [](const std::vector<CloneState>&) {});
  EXPECT_EQ(supervisor.Run(), 202);
  EXPECT_EQ(supervisor.Run(), 0);
  const std::vector<std::string> starts =
      absl::StrSplit(Contents("starts"), '\n', absl::SkipEmpty());
  EXPECT_THAT(starts, UnorderedElementsAre("0", "1", "0GPU-0", "1GPU-1"));
  for (const char* clone : {"0", "1"}) {
    const std::vector<std::string> words = absl::StrSplit(
        Contents(absl::StrCat("identity.", clone)), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    ASSERT_EQ(words.size(), 4u);
    EXPECT_EQ(words[0], words[2]);
    EXPECT_EQ(words[1], "1");
    EXPECT_EQ(words[3], "2");
  }
}

TEST_F(SupervisorTest, AllProcessesOfACloneHaveOneSession) {
  // Each process writes the session and its number within it.
  EXPECT_EQ(Run("od -An -v -t u8 -N 16 <&3 >> $DIR/identity.$CLONE; "
                "[ $(wc -l < $DIR/identity.$CLONE) -eq 3 ] || kill -9 $$",
                2),
            0);
  std::vector<std::string> sessions;
  for (const char* clone : {"0", "1"}) {
    const std::vector<std::string> words = absl::StrSplit(
        Contents(absl::StrCat("identity.", clone)), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    ASSERT_EQ(words.size(), 6u);
    for (int process = 0; process < 3; ++process) {
      EXPECT_EQ(words[2 * process], words[0]);
      EXPECT_EQ(words[2 * process + 1], absl::StrCat(process + 1));
    }
    EXPECT_NE(words[0], "0");
    sessions.push_back(words[0]);
  }
  EXPECT_NE(sessions[0], sessions[1]);
}

TEST_F(SupervisorTest, RestartsACloneThatHasTrainedWithoutAPause) {
  CloneReport trained;
  trained.step = 1;
  SupervisorOptions options = Options();
  options.settled = absl::ZeroDuration();
  options.poll_period = absl::Microseconds(1);
  options.initial_backoff = options.max_backoff = absl::Hours(1);
  FakeClock clock;
  const absl::Duration start = clock.Now();
  EXPECT_EQ(Run(absl::StrCat("echo x >> $DIR/starts; echo '", EncodeCloneReport(trained),
                             "' >&3; [ $(wc -l < $DIR/starts) -eq 6 ] || kill -9 $$"),
                options, &clock),
            0)
      << "five deaths of a settled clone must not end the worker";
  EXPECT_EQ(Contents("starts"), "x\nx\nx\nx\nx\nx\n");
  EXPECT_LT(clock.Now() - start, absl::Minutes(30));
}

TEST_F(SupervisorTest, RestartsACloneThatNeverTrainsAfterGrowingPauses) {
  SupervisorOptions options = Options();
  options.initial_backoff = absl::Hours(1);
  options.max_backoff = absl::Hours(100);
  options.settled = absl::ZeroDuration();
  options.poll_period = absl::Seconds(10);
  FakeClock clock;
  const absl::Duration start = clock.Now();
  EXPECT_EQ(
      Run("echo x >> $DIR/starts; [ $(wc -l < $DIR/starts) -eq 4 ] || exit 3", options, &clock), 0);
  // Three pauses of 1, 1.6 and 2.56 hours, each reduced by up to 30 %.
  EXPECT_GE(clock.Now() - start, 0.7 * absl::Hours(5.16));
}

// Returns the state letter of a process ("T": stopped), or nothing if the process is gone or a
// zombie.
std::string StateOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string status;
  std::getline(file, status);
  const size_t name_end = status.rfind(')');
  if (name_end == std::string::npos) return "";
  const std::string state = status.substr(name_end + 2, 1);
  return state == "Z" || state == "X" ? "" : state;
}

TEST_F(SupervisorTest, AStoppedCloneDoesNotOutliveItsSupervisor) {
  const pid_t supervisor = fork();
  ASSERT_GE(supervisor, 0);
  if (supervisor == 0) _exit(Run("echo $$ > $DIR/tmp; mv $DIR/tmp $DIR/pid; kill -STOP $$"));
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  pid_t clone = 0;
  while ((!absl::SimpleAtoi(Contents("pid"), &clone) || StateOf(clone) != "T") &&
         absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(StateOf(clone), "T");
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  while (!StateOf(clone).empty() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(StateOf(clone), "") << "process " << clone;
  if (!StateOf(clone).empty()) kill(clone, SIGKILL);
}

TEST_F(SupervisorTest, DoesNotLoopForACommandThatDoesNotExist) {
  EXPECT_EQ(Run("exec /nonexistent/worker"), 70);
}

TEST_F(SupervisorTest, ReadsReports) {
  CloneReport report;
  report.step = 12;
  report.loss = 0.5;
  std::string line = EncodeCloneReport(report);
  line.pop_back();
  // The report arrives in two pieces, after garbage.
  const std::string half = line.substr(0, 4);
  EXPECT_EQ(Run(absl::StrCat("echo garbage >&3; printf '%s' '", half, "' >&3; sleep 0.05; echo '",
                             line.substr(4), "' >&3")),
            0);
  ASSERT_EQ(states_.size(), 1);
  EXPECT_EQ(states_[0].report.step, 12);
  EXPECT_EQ(states_[0].report.loss, 0.5);
  EXPECT_EQ(states_[0].phase, CloneState::Phase::kDone);
}

}  // namespace
}  // namespace pushpull
