// A run goes on with another number of ps tasks: only from a checkpoint, and never by losing steps
// without a word.
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ps_server/runtime/server_core.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

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

  // Trains `steps` steps with this number of tasks. Returns the version that the server ends with.
  uint64_t Train(int tasks, uint64_t steps, bool kill) {
    options_.tasks = tasks;
    TestServer server(folder_, options_);
    EXPECT_EQ(server.Start(), absl::OkStatus());
    std::optional<uint64_t> first;
    TestClone clone(&server, {});
    EXPECT_TRUE(server.Await([&](const auto& status) {
      if (status.epoch() == 0) return false;
      if (!first.has_value()) first = status.version();
      return status.version() >= *first + steps;
    }));
    clone.Stop();
    clone.Join().IgnoreError();
    if (!kill) {
      EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
    }
    const uint64_t reached = server.core().Status().version();
    if (kill) server.Kill();
    return reached;
  }
  absl::Status Start(int tasks, bool from_checkpoint = false) {
    TestServerOptions options = options_;
    options.tasks = tasks;
    options.from_checkpoint = from_checkpoint;
    TestServer server(folder_, options);
    return server.Start();
  }
  // Starts a server that serves this version.
  void ExpectServes(int tasks, bool from_checkpoint, uint64_t version) {
    TestServerOptions options = options_;
    options.tasks = tasks;
    options.from_checkpoint = from_checkpoint;
    TestServer server(folder_, options);
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
  for (const auto& [before, after] : {std::pair(1, 2), std::pair(2, 1)}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    const uint64_t killed_at = Train(before, 5, /*kill=*/true);
    const absl::Status refused = Start(after);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("holds step ", killed_at)));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("start with --tasks=", before)));
    EXPECT_THAT(StateFiles(), SizeIs(before));
    // What the message says to do works.
    const uint64_t drained_at = Train(before, 5, /*kill=*/false);
    EXPECT_GE(drained_at, killed_at + 5);
    ExpectServes(after, /*from_checkpoint=*/false, drained_at);
    std::filesystem::remove_all(folder_.path() + "/state");
  }
}

TEST_F(OtherTasksTest, WhoeverGoesBackToACheckpointGivesTheStepsUpForGood) {
  const uint64_t saved = Train(1, 5, /*kill=*/false);
  Train(1, 5, /*kill=*/true);
  EXPECT_THAT(std::string(Start(2).message()),
              HasSubstr(absl::StrCat("(the newest is of step ", saved, ")")));
  EXPECT_THAT(std::string(Start(2).message()), HasSubstr("--from_checkpoint"));
  ExpectServes(2, /*from_checkpoint=*/true, saved);
  EXPECT_THAT(StateFiles(), SizeIs(3));
  int aside = 0;
  for (const std::string& name : StateFiles()) aside += absl::StrContains(name, ".aside") ? 1 : 0;
  EXPECT_EQ(aside, 1) << "the file of the one task";
  ExpectServes(2, /*from_checkpoint=*/false, saved);
}

TEST_F(OtherTasksTest, WithoutACheckpointNoneIsNamed) {
  Train(1, 5, /*kill=*/true);
  EXPECT_THAT(std::string(Start(2).message()), Not(HasSubstr("--from_checkpoint")));
}

}  // namespace
}  // namespace pushpull
