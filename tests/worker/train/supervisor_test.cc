#include "worker/train/supervisor.h"

#include <signal.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testutil/job/test_job.h"
#include "worker/train/clone_report_codec.h"

namespace pushpull {
namespace {

// Runs a shell script per clone, with $CLONE and $DIR set.
class SupervisorTest : public ::testing::Test {
 protected:
  int Run(const std::string& script, int num_clones = 1) {
    SupervisorOptions options;
    options.num_clones = num_clones;
    options.command = [this, script](int clone) {
      return std::vector<std::string>{
          "/bin/sh", "-c", absl::StrCat("CLONE=", clone, "; DIR=", folder_.path(), "; ", script)};
    };
    options.permanent_exit_codes = {65};
    options.leaving_exit_codes = {77};
    options.initial_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(5);
    options.max_rapid_deaths = 4;
    options.drain_timeout = absl::Seconds(20);
    options.poll_period = absl::Milliseconds(2);
    SteadyClock clock;
    Supervisor supervisor(options, &clock, &signal_, [this](const std::vector<CloneState>& states) {
      states_ = states;
      if (on_progress_) on_progress_();
    });
    return supervisor.Run();
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

TEST_F(SupervisorTest, EndsWhenAllHaveEnded) {
  EXPECT_EQ(Run("echo $CLONE > $DIR/$CLONE", 3), 0);
  for (const char* clone : {"0", "1", "2"}) EXPECT_EQ(Contents(clone), absl::StrCat(clone, "\n"));
}

TEST_F(SupervisorTest, StartsADeadCloneAgain) {
  EXPECT_EQ(Run("echo x >> $DIR/starts; "
                "case $(wc -l < $DIR/starts) in 1) exit 1;; 2) kill -9 $$;; esac"),
            0);
  EXPECT_EQ(Contents("starts"), "x\nx\nx\n");
  ASSERT_EQ(states_.size(), 1);
  EXPECT_EQ(states_[0].deaths, 2);
  EXPECT_EQ(states_[0].last_death, "killed by signal 9");
}

TEST_F(SupervisorTest, PermanentFailureStopsAll) {
  EXPECT_EQ(Run("trap 'echo stopped > $DIR/stopped; exit 143' TERM; touch $DIR/ready.$CLONE; "
                "if [ $CLONE = 1 ]; then "
                "  while [ ! -e $DIR/ready.0 ]; do sleep 0.01; done; exit 65; "
                "fi; while :; do sleep 0.01; done",
                2),
            65);
  EXPECT_EQ(Contents("stopped"), "stopped\n");
}

TEST_F(SupervisorTest, ACloneThatLeavesIsNotStartedAgainAndTheOthersGoOn) {
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

TEST_F(SupervisorTest, AWorkerWhoseClonesHaveAllLeftSaysSo) { EXPECT_EQ(Run("exit 77", 2), 77); }

TEST_F(SupervisorTest, PassesTheSignalOn) {
  on_progress_ = [this] {
    if (files_.GetInfo(folder_.path() + "/ready").ok()) signal_.store(SIGTERM);
  };
  EXPECT_EQ(Run("trap 'echo stopped > $DIR/stopped; exit 143' TERM; touch $DIR/ready; "
                "while :; do sleep 0.01; done"),
            128 + SIGTERM);
  EXPECT_EQ(Contents("stopped"), "stopped\n");
}

TEST_F(SupervisorTest, GivesUpOnACloneThatKeepsDying) {
  EXPECT_EQ(Run("echo x >> $DIR/starts; exit 3"), 70);
  EXPECT_EQ(Contents("starts"), "x\nx\nx\nx\n");
}

TEST_F(SupervisorTest, CommandThatDoesNotExistIsNoEndlessLoop) {
  EXPECT_EQ(Run("exec /nonexistent/worker"), 70);
}

TEST_F(SupervisorTest, ReadsReports) {
  CloneReport report;
  report.step = 12;
  report.loss = 0.5;
  std::string line = EncodeCloneReport(report);
  line.pop_back();
  // In two pieces, with garbage before.
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
