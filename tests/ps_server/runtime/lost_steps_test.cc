// What a server says about steps that its run has lost, or loses with its process.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "ps_server/runtime/run_files.h"
#include "ps_server/store/variable_store.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

class LostStepsTest : public ::testing::Test {
 protected:
  LostStepsTest() { options_.mapped = true; }
  std::string train_dir() const { return folder_.path() + "/train"; }

  // Trains a few steps and ends the server as SIGTERM does. Returns how often it has warned of
  // this.
  int WarningsOfTraining(const std::string& text) {
    const WarningSink log;
    TestServer server(folder_, options_);
    EXPECT_TRUE(server.Start().ok());
    EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&server, 5)));
    return log.Count(text);
  }
  void RemoveCheckpoints() {
    for (const auto& entry : std::filesystem::directory_iterator(train_dir())) {
      if (absl::StartsWith(entry.path().filename().string(), "ckpt-")) {
        std::filesystem::remove_all(entry.path());
      }
    }
  }

  TestFolder folder_;
  TestServerOptions options_;
  PosixFileSystem files_;
};

TEST_F(LostStepsTest, WarnsIfNothingIsLeftOfARunThatHasTrained) {
  const std::string text = "a run has trained in " + train_dir();
  EXPECT_EQ(WarningsOfTraining(text), 0) << "the first start";
  RemoveCheckpoints();
  EXPECT_EQ(WarningsOfTraining(text), 1);
}

TEST_F(LostStepsTest, DoesNotWarnOfARunThatGoesOnOrHasNotTrained) {
  const std::string text = "a run has trained in " + train_dir();
  {
    TestServer server(folder_, options_);
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await(
        [this](const auto&) { return std::filesystem::exists(train_dir() + "/pipeline.config"); }));
    EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  }
  EXPECT_EQ(WarningsOfTraining(text), 0) << "no step was trained";
  const WarningSink log;
  TestServer server(folder_, options_);
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() > 0; }));
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  EXPECT_EQ(log.Count(text), 0) << "the checkpoint is there";
}

// The end of a server with version 3, of which there is no checkpoint. Returns whether it warned.
bool WarnsAtTheEnd(const std::string& state_dir, FileSystem* files) {
  const JobSpec job = JobSpec::Create(MakeTinyConfig(""), true, 1);
  VariableStoreOptions options;
  options.state_dir = state_dir;
  options.name = "file";
  options.owner.run_id = "0123456789abcdef";
  auto store = VariableStore::Open(options, job.layout, job.optimizer);
  EXPECT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->BeginFill(3).ok());
  EXPECT_TRUE((*store)->Commit(/*epoch=*/1, "").ok());
  RunFiles run_files(files, 1);
  run_files.AddShard(store->get());
  EXPECT_TRUE(run_files.ShardRestored(0).ok());
  const WarningSink log;
  run_files.End(/*verified_step=*/2);
  return log.Count("the variables are lost with this process") == 1 &&
         log.Count("version 3 is newer than the newest verified checkpoint") == 1;
}

TEST_F(LostStepsTest, AServerWithoutMappedStateSaysAtItsEndWhatIsLost) {
  EXPECT_TRUE(WarnsAtTheEnd("", &files_));
  EXPECT_FALSE(WarnsAtTheEnd(folder_.path() + "/state", &files_));
}

}  // namespace
}  // namespace pushpull
