#include "ps_server/store/state_of_other_tasks.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ps_server/store/variable_store.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class StateOfOtherTasksTest : public ::testing::Test {
 protected:
  // Makes the state file of a shard, as a server that is killed leaves it.
  void Leave(int shard, int tasks, uint64_t version, const std::string& train_dir = "train") {
    Open(shard, tasks, version, train_dir);
  }
  std::unique_ptr<VariableStore> Open(int shard, int tasks, uint64_t version,
                                      const std::string& train_dir = "train") {
    VariableStoreOptions options = dir_.options();
    options.owner = Owner(tasks, train_dir);
    options.owner.shard = shard;
    options.name = absl::StrCat(train_dir, "-", shard, "-of-", tasks);
    auto store = VariableStore::Open(options, layout_, optimizer_);
    EXPECT_TRUE(store.ok()) << store.status();
    FillVersion(store->get(), version, 1, "");
    return *std::move(store);
  }
  StateOwner Owner(int tasks, const std::string& train_dir = "train") {
    const std::string path = folders_.path() + "/" + train_dir;
    std::filesystem::create_directory(path);
    StateOwner owner = dir_.options().owner;
    owner.tasks = tasks;
    owner.train_dir = path;
    owner.folder_identity = files_.FolderIdentity(path).value();
    return owner;
  }
  std::vector<StateFileInfo> Find(int tasks) {
    auto found = FindStateOfOtherTasks(files_, dir_.path(), Owner(tasks));
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
  static std::vector<std::string> Names(const std::vector<StateFileInfo>& infos) {
    std::vector<std::string> names;
    for (const StateFileInfo& info : infos) names.push_back(FileNameOf(info.path));
    return names;
  }

  const VariableLayout layout_ = *VariableLayout::Create({MakeVariable("w", {3000})});
  const OptimizerSpec optimizer_ = MakeMomentum();
  const TestStateDir dir_;
  const TestStateDir folders_;  // holds the train_dirs
  PosixFileSystem files_;
};

TEST_F(StateOfOtherTasksTest, FindsTheFilesOfTheRunsFolderAlone) {
  Leave(0, 1, 5);
  Leave(1, 2, 7);
  Leave(0, 1, 9, "copy");
  EXPECT_THAT(Names(Find(1)), UnorderedElementsAre("train-1-of-2"));
  EXPECT_THAT(Names(Find(2)), UnorderedElementsAre("train-0-of-1"));
  StateOwner other = Owner(2);
  other.run_id = "another run's id";
  EXPECT_THAT(*FindStateOfOtherTasks(files_, dir_.path(), other), IsEmpty());
  EXPECT_THAT(*FindStateOfOtherTasks(files_, "", Owner(2)), IsEmpty()) << "no state_dir";
}

TEST_F(StateOfOtherTasksTest, AVersionIsWholeIfEveryShardHasReachedIt) {
  Leave(0, 3, 20);
  Leave(1, 3, 20);
  EXPECT_FALSE(NewestWholeState(Find(1)).has_value()) << "shard 2 is missing";
  Leave(0, 2, 8);
  Leave(1, 2, 7);
  const std::optional<WholeState> newest = NewestWholeState(Find(1));
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->tasks, 2);
  EXPECT_EQ(newest->version, 7u);
}

TEST_F(StateOfOtherTasksTest, FilesThatAreSetAsideAreFoundNoMore) {
  Leave(0, 2, 8);
  const std::unique_ptr<VariableStore> used = Open(1, 2, 8);
  ASSERT_TRUE(SetStateAside(files_, Find(1)).ok());
  EXPECT_THAT(Names(Find(1)), UnorderedElementsAre("train-1-of-2")) << "a server uses that one";
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/train-0-of-2.aside"));
  Leave(0, 2, 9);
  ASSERT_TRUE(SetStateAside(files_, Find(1)).ok());
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/train-0-of-2.aside-2"));
}

}  // namespace
}  // namespace pushpull
