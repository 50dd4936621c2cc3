// A run goes on with another number of ps tasks, or with another optimizer: only from a checkpoint,
// and never by losing steps without a word.
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "ps_server/runtime/server_core.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class OtherTasksTest : public ::testing::Test {
 protected:
  OtherTasksTest() {
    options_.train_config = "num_steps: 1000000 save_checkpoints_secs: 0";
    options_.mapped = true;
    options_.num_replicas = 1;
  }

  // Trains with this number of tasks until the version is applied, and ends the server as SIGKILL
  // or SIGTERM does. Returns the version that the server has kept.
  uint64_t Train(int tasks, uint64_t version, bool kill) {
    options_.tasks = tasks;
    TestServer server(folder_, options_);
    EXPECT_EQ(server.Start(), absl::OkStatus());
    TestClone clone(&server, {});
    EXPECT_TRUE(server.Await([&](const auto& status) { return status.version() >= version; }));
    clone.Stop();
    clone.Join().IgnoreError();
    const uint64_t reached = server.core().Status().version();
    if (kill) {
      server.Kill();
      return reached;
    }
    EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
    const auto steps = ListCheckpoints(server.files(), server.train_dir());
    EXPECT_TRUE(steps.ok() && !steps->empty()) << steps.status();
    return steps->back();
  }
  absl::Status Start(int tasks) {
    options_.tasks = tasks;
    return TestServer(folder_, options_).Start();
  }
  void ExpectServes(int tasks, uint64_t version) {
    options_.tasks = tasks;
    TestServer server(folder_, options_);
    ASSERT_EQ(server.Start(), absl::OkStatus());
    EXPECT_TRUE(server.Await([&](const auto& status) {
      return status.epoch() > 0 && status.version() == version;
    })) << server.core().Status().ShortDebugString();
  }
  std::vector<std::string> StateFiles() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/state")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  TestFolder folder_;
  TestServerOptions options_;
};

TEST_F(OtherTasksTest, StepsThatAreInNoCheckpointAreNotLostWithoutAWord) {
  uint64_t version = 0;
  for (const auto& [before, after] : {std::pair(1, 2), std::pair(2, 1)}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    version = Train(before, version + 5, /*kill=*/true);
    const absl::Status refused = Start(after);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("holds step ", version)));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("start with --tasks=", before)));
    EXPECT_THAT(StateFiles(), SizeIs(before));
    // What the message says to do works.
    version = Train(before, version + 5, /*kill=*/false);
    ExpectServes(after, version);
    std::filesystem::remove_all(folder_.path() + "/state");
  }
}

TEST_F(OtherTasksTest, WhoeverGoesBackToACheckpointGivesTheStepsUpForGood) {
  const uint64_t saved = Train(1, 5, /*kill=*/false);
  Train(1, saved + 5, /*kill=*/true);
  const absl::Status refused = Start(2);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("(the newest is of step ", saved, ")")));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--from_checkpoint"));
  options_.from_checkpoint = true;
  const uint64_t reached = Train(2, saved + 2, /*kill=*/true);
  EXPECT_THAT(StateFiles(), SizeIs(3));
  int aside = 0;
  for (const std::string& name : StateFiles()) aside += absl::StrContains(name, ".aside") ? 1 : 0;
  EXPECT_EQ(aside, 1) << "the file of the one task";
  options_.from_checkpoint = false;
  ExpectServes(2, reached);
}

// The other task ran on another machine, whose state files this one does not have.
TEST_F(OtherTasksTest, APartOfTheStateIsNotLostWithoutAWordEither) {
  const uint64_t saved = Train(2, 5, /*kill=*/false);
  const uint64_t version = Train(2, saved + 5, /*kill=*/true);
  for (const std::string& name : StateFiles()) {
    if (absl::EndsWith(name, "-1-of-2")) std::filesystem::remove(folder_.path() + "/state/" + name);
  }
  ASSERT_THAT(StateFiles(), SizeIs(1));
  const absl::Status refused = Start(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("holds step ", version, " of shard 0")));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("other machines"));
  options_.from_checkpoint = true;
  ExpectServes(1, saved);
}

TEST_F(OtherTasksTest, WithoutACheckpointNoneIsNamed) {
  Train(1, 5, /*kill=*/true);
  EXPECT_THAT(std::string(Start(2).message()), Not(HasSubstr("--from_checkpoint")));
}

TEST_F(OtherTasksTest, StepsOfAnotherOptimizerAreNotLostWithoutAWord) {
  const std::string momentum = options_.train_config;
  const std::string adam =
      absl::StrCat(momentum,
                   " optimizer { adam_optimizer { learning_rate { constant_learning_rate { "
                   "learning_rate: 0.1 } } } }");
  const uint64_t version = Train(1, 5, /*kill=*/true);
  options_.train_config = adam;
  const absl::Status refused = Start(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(absl::StrCat("holds step ", version, " of this run")),
                    HasSubstr("the optimizer's vectors Momentum "),
                    HasSubstr(absl::StrCat("`psctl state clean ", StateFiles().at(0)))));
  options_.train_config = momentum;
  ExpectServes(1, version);
  // What the message says to do for a new beginning works.
  std::filesystem::remove(absl::StrCat(folder_.path(), "/state/", StateFiles().at(0)));
  options_.train_config = adam;
  ExpectServes(1, 0);
}

TEST_F(OtherTasksTest, AnOptimizerThatFitsTheCheckpointGivesUpNoStepsEither) {
  const std::string with_averages = options_.train_config;
  const uint64_t saved = Train(1, 5, /*kill=*/false);
  Train(1, saved + 5, /*kill=*/true);
  options_.train_config = absl::StrCat(with_averages, " optimizer { use_moving_average: false }");
  EXPECT_THAT(std::string(Start(1).message()),
              AllOf(HasSubstr(absl::StrCat("(the newest is of step ", saved, ")")),
                    HasSubstr("--from_checkpoint")));
  options_.from_checkpoint = true;
  ExpectServes(1, saved);
}

}  // namespace
}  // namespace pushpull
