#include "ps_server/store/state_of_other_tasks.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "ps_server/store/variable_store.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class StateOfOtherTasksTest : public StateDirTest {
 protected:
  // Makes the state file of a shard, as a server that is killed leaves it.
  void Leave(int shard, int tasks, uint64_t version, const std::string& run = "train") {
    OpenShard(shard, tasks, version, run);
  }
  std::unique_ptr<VariableStore> OpenShard(int shard, int tasks, uint64_t version,
                                           const std::string& run = "train") {
    VariableStoreOptions options = OptionsOf(absl::StrCat(run, "-", shard, "-of-", tasks), run);
    options.owner.tasks = tasks;
    options.owner.shard = shard;
    if (!knows_identity_) options.owner.folder_identity = "";
    auto store = Open(options);
    FillVersion(store.get(), version, 1, "");
    return store;
  }
  StateOwner Owner(int tasks, const std::string& run = "train") {
    StateOwner owner = OptionsOf("", run).owner;
    owner.tasks = tasks;
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

  bool knows_identity_ = true;  // whether a file says which folder its train_dir is
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

// Returns what the headers of a run with `tasks` tasks say, of which each shard has its version.
std::vector<StateFileInfo> Infos(int tasks, const std::vector<std::optional<uint64_t>>& versions) {
  std::vector<StateFileInfo> infos;
  for (int shard = 0; shard < static_cast<int>(versions.size()); ++shard) {
    StateFileInfo& info = infos.emplace_back();
    info.path = absl::StrCat("/dev/", shard, "-of-", tasks);
    info.use = StateFileInfo::Use::kResumable;
    info.shard = shard;
    info.tasks = tasks;
    info.newest_version = versions[shard];
  }
  return infos;
}

TEST(NewestWholeStateTest, IsTheNewestOfAllNumbersOfTasks) {
  const struct {
    std::vector<std::optional<uint64_t>> of_two, of_three;
    int tasks;
    uint64_t version;
  } cases[] = {
      {{7, 8}, {9, 11, 10}, 3, 9},
      {{9, 10}, {8, 8, 8}, 2, 9},
      {{20}, {8, 8, 8}, 3, 8},
      {{20, std::nullopt}, {8, 8, 8}, 3, 8},
      {{7, 8}, {9, std::nullopt, 9}, 2, 7},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(&c - cases);
    std::vector<StateFileInfo> infos = Infos(2, c.of_two);
    for (const StateFileInfo& info : Infos(3, c.of_three)) infos.push_back(info);
    const std::optional<WholeState> newest = NewestWholeState(infos);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->tasks, c.tasks);
    EXPECT_EQ(newest->version, c.version);
  }
  EXPECT_FALSE(NewestWholeState(Infos(2, {20, std::nullopt})).has_value());
}

TEST(CheckForLostStepsTest, NamesWhatIsInNoCheckpoint) {
  const std::vector<StateFileInfo> whole = Infos(2, {8, 7});
  EXPECT_EQ(CheckForLostSteps({}, 1, std::nullopt), absl::OkStatus());
  EXPECT_EQ(CheckForLostSteps(whole, 1, 7), absl::OkStatus());
  absl::Status lost = CheckForLostSteps(whole, 1, 6);
  EXPECT_TRUE(absl::IsFailedPrecondition(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("the mapped state in /dev holds step 7 of this run"),
                    HasSubstr("(the newest is of step 6)"), HasSubstr("over 1 task:"),
                    HasSubstr("start with --tasks=2"), HasSubstr("--from_checkpoint")));

  // The tasks 0 and 2 ran on other machines.
  const std::vector<StateFileInfo> part = Infos(3, {std::nullopt, 9});
  EXPECT_EQ(CheckForLostSteps(part, 2, 9), absl::OkStatus());
  lost = CheckForLostSteps(part, 2, 8);
  EXPECT_TRUE(absl::IsFailedPrecondition(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("/dev/1-of-3 holds step 9 of shard 1 of this run"),
                    HasSubstr("(the newest is of step 8)"), HasSubstr("other machines"),
                    HasSubstr("start with --tasks=3"), HasSubstr("--from_checkpoint"),
                    Not(HasSubstr("psctl state clean"))));
  lost = CheckForLostSteps(part, 2, std::nullopt);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("`psctl state clean 1-of-3 --state_dir=/dev`"),
                    Not(HasSubstr("--from_checkpoint"))));
}

TEST_F(StateOfOtherTasksTest, AFileThatDoesNotFitKeepsItsStepsUntilTheyAreGivenUp) {
  Leave(0, 1, 7);
  VariableStoreOptions options = OptionsOf("train-0-of-1", "train");
  OptimizerSpec other = optimizer_;
  other.has_ema = !other.has_ema;
  auto store = VariableStore::Open(options, layout_, other);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->unfit_version(), 7u);
  EXPECT_EQ(CheckForUnfitSteps(**store, 7), absl::OkStatus());
  const absl::Status lost = CheckForUnfitSteps(**store, 6);
  EXPECT_TRUE(absl::IsFailedPrecondition(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr(dir_.path() + "/train-0-of-1 holds step 7 of this run"),
                    HasSubstr("(the newest is of step 6)"), HasSubstr("the optimizer's vectors"),
                    HasSubstr("--from_checkpoint"), Not(HasSubstr("psctl state clean"))));
  EXPECT_THAT(std::string(CheckForUnfitSteps(**store, std::nullopt).message()),
              AllOf(HasSubstr("`psctl state clean train-0-of-1 --state_dir=" + dir_.path() + "`"),
                    Not(HasSubstr("--from_checkpoint"))));

  // A file of another run does not fit either, and nobody goes on from its steps here.
  store->reset();
  options.owner.run_id = "another run's id";
  store = VariableStore::Open(options, layout_, other);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_FALSE((*store)->unfit_version().has_value());
  EXPECT_EQ(CheckForUnfitSteps(**store, std::nullopt), absl::OkStatus());
}

// The path says which folder it is only where a file system has no better name of it.
TEST_F(StateOfOtherTasksTest, ATrainDirThatWasRenamedIsStillTheSame) {
  Leave(0, 2, 7);
  const auto found = [&](const StateOwner& owner) {
    return FindStateOfOtherTasks(files_, dir_.path(), owner)->size() == 1;
  };
  const StateOwner same = Owner(1);
  ASSERT_TRUE(found(same));
  StateOwner renamed = same;
  renamed.train_dir = folders_.path() + "/renamed";
  EXPECT_TRUE(found(renamed));
  StateOwner replaced = same;
  replaced.folder_identity = "another";
  EXPECT_FALSE(found(replaced));
  for (StateOwner* owner : {&renamed, &replaced}) owner->folder_identity = "";
  EXPECT_FALSE(found(renamed));
  EXPECT_TRUE(found(replaced));
}

TEST_F(StateOfOtherTasksTest, AFileWithoutItsFoldersIdentityIsFoundByThePath) {
  knows_identity_ = false;
  Leave(0, 2, 7);
  knows_identity_ = true;
  EXPECT_THAT(Names(Find(1)), UnorderedElementsAre("train-0-of-2"));
  StateOwner elsewhere = Owner(1, "copy");
  EXPECT_THAT(*FindStateOfOtherTasks(files_, dir_.path(), elsewhere), IsEmpty());
}

TEST(SetStateAsideTest, GoesOnAfterFilesThatItLeaves) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectory("/dev").ok());
  std::vector<StateFileInfo> infos = Infos(4, {1, 1, 1, 1});
  infos[0].use = StateFileInfo::Use::kInUse;
  for (const int shard : {0, 2, 3}) {  // somebody has removed that of shard 1
    ASSERT_TRUE(WriteFileAtomically(files, infos[shard].path, "state").ok());
  }
  EXPECT_EQ(SetStateAside(files, infos), absl::OkStatus());
  EXPECT_THAT(*files.List("/dev"), UnorderedElementsAre("0-of-4", "2-of-4.aside", "3-of-4.aside"));
}

TEST(SetStateAsideTest, NamesTheFileThatCannotBeRenamed) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectory("/dev").ok());
  const std::vector<StateFileInfo> infos = Infos(2, {1, 1});
  for (const StateFileInfo& info : infos) {
    ASSERT_TRUE(WriteFileAtomically(files, info.path, "state").ok());
  }
  files.SetFault(FileFault{.kind = FileFault::Kind::kIoError});
  const absl::Status status = SetStateAside(files, infos);
  EXPECT_TRUE(IsPassing(status)) << status;  // clones and tasks wait for the next server
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot rename /dev/0-of-2 to /dev/0-of-2"));
  EXPECT_THAT(*files.List("/dev"), UnorderedElementsAre("0-of-2", "1-of-2"));
}

TEST_F(StateOfOtherTasksTest, FilesThatAreSetAsideAreFoundNoMore) {
  Leave(0, 2, 8);
  const std::unique_ptr<VariableStore> used = OpenShard(1, 2, 8);
  ASSERT_TRUE(SetStateAside(files_, Find(1)).ok());
  EXPECT_THAT(Names(Find(1)), UnorderedElementsAre("train-1-of-2")) << "a server uses that one";
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/train-0-of-2.aside"));
  Leave(0, 2, 9);
  ASSERT_TRUE(SetStateAside(files_, Find(1)).ok());
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/train-0-of-2.aside-2"));
}

}  // namespace
}  // namespace pushpull
