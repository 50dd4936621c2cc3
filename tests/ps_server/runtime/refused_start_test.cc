// What a server whose start is refused leaves behind: nothing that it has made.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "ps_server/runtime/server.h"
#include "ps_server/transport/listening_sockets.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

class RefusedStartTest : public ::testing::Test {
 protected:
  ServerOptions Options() {
    ServerOptions options;
    options.config = MakeTinyConfig("");
    options.train_dir = folder_.path() + "/runs/mine";
    options.state_dir = folder_.path() + "/state/mine";
    options.tasks = 2;
    options.listen = absl::StrCat("unix:", folder_.path(), "/ps");
    return options;
  }
  absl::Status Start() { return Server::Create(Options(), &files_, &clock_).status(); }
  bool Exists(const std::string& name) { return files_.GetInfo(folder_.path() + name).ok(); }

  TestFolder folder_;
  PosixFileSystem files_;
  SteadyClock clock_;
};

TEST_F(RefusedStartTest, LeavesNoFolders) {
  const auto other = ListeningSockets::Bind(absl::StrCat(Options().listen, ".1"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Start().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(Exists("/state"));
  EXPECT_FALSE(Exists("/runs"));
}

TEST_F(RefusedStartTest, LeavesFoldersThatWereThere) {
  folder_.MakeFolder("state/mine");
  const auto other = ListeningSockets::Bind(absl::StrCat(Options().listen, ".1"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Start().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Exists("/state/mine"));
}

TEST_F(RefusedStartTest, AServerThatEndsBeforeTheFirstStepLeavesNoStateFolder) {
  auto server = Server::Create(Options(), &files_, &clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Exists("/state/mine"));
  (*server)->Drain();
  const auto end = (*server)->WaitForEnd(absl::Seconds(60));
  ASSERT_TRUE(end.has_value());
  (*server)->Stop(*end);
  server->reset();
  EXPECT_FALSE(Exists("/state"));
}

// Destruction without Stop has the effect of SIGKILL, after which the next server needs the state.
TEST_F(RefusedStartTest, AServerThatKeepsItsStateKeepsTheFolder) {
  absl::Notification serving;
  ServerOptions options = Options();
  options.on_serving = [&serving] { serving.Notify(); };
  auto server = Server::Create(std::move(options), &files_, &clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(serving.WaitForNotificationWithTimeout(absl::Seconds(60)));
  server->reset();
  EXPECT_EQ(files_.List(folder_.path() + "/state/mine")->size(), 2u);
}

}  // namespace
}  // namespace pushpull
