#include "ps_server/store/state_folder.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ps_server/store/variable_store.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using Use = StateFileInfo::Use;

class StateFolderTest : public StateDirTest {
 protected:
  // Creates a train_dir and a state file for it that holds version 3.
  std::unique_ptr<VariableStore> OpenStore(const std::string& name, const std::string& run) {
    auto store = Open(OptionsOf(name, run));
    if (!store->newest().has_value()) FillVersion(store.get(), 3, 1, "");
    return store;
  }
  std::map<std::string, StateFileInfo> List() {
    const auto listed = ListStateFiles(files_, dir_.path());
    EXPECT_TRUE(listed.ok()) << listed.status();
    std::map<std::string, StateFileInfo> by_name;
    for (const StateFileInfo& info : *listed) by_name[FileNameOf(info.path)] = info;
    return by_name;
  }
  std::vector<std::string> Clean(const std::string& also = "") {
    const auto removed = CleanStateFiles(files_, dir_.path(), [&also](const StateFileInfo& info) {
      return !also.empty() && FileNameOf(info.path) == also;
    });
    EXPECT_TRUE(removed.ok()) << removed.status();
    std::vector<std::string> names;
    for (const StateFileInfo& info : *removed) names.push_back(FileNameOf(info.path));
    return names;
  }
};

TEST_F(StateFolderTest, ListsNoFilesInAMissingFolder) {
  EXPECT_TRUE(ListStateFiles(files_, dir_.path() + "/none")->empty());
}

TEST_F(StateFolderTest, ClassifiesEachFileByItsUse) {
  const auto running = OpenStore("running", "a");
  OpenStore("killed", "b");
  OpenStore("lost", "c");
  std::filesystem::remove_all(folders_.path() + "/c");
  OpenStore("anew", "d");
  std::filesystem::rename(folders_.path() + "/d", folders_.path() + "/elsewhere");
  std::filesystem::create_directory(folders_.path() + "/d");
  OpenStore("old.aside-2", "e");
  std::ofstream(dir_.path() + "/stranger") << "not a state file";

  const std::map<std::string, StateFileInfo> files = List();
  ASSERT_EQ(files.size(), 6u);
  EXPECT_EQ(files.at("running").use, Use::kInUse);
  EXPECT_EQ(files.at("running").pid, getpid());
  const StateFileInfo& killed = files.at("killed");
  EXPECT_EQ(killed.use, Use::kResumable);
  EXPECT_EQ(killed.newest_version, 3u);
  EXPECT_EQ(killed.train_dir, folders_.path() + "/b");
  EXPECT_EQ(killed.tasks, 1);
  EXPECT_EQ(killed.size_bytes,
            static_cast<int64_t>(std::filesystem::file_size(dir_.path() + "/killed")));
  EXPECT_EQ(files.at("lost").use, Use::kUnknown) << "the folder may have been renamed";
  EXPECT_THAT(files.at("lost").reason, HasSubstr("its train_dir is not at this path"));
  EXPECT_THAT(files.at("lost").reason, HasSubstr("`psctl state clean lost`"));
  EXPECT_EQ(files.at("anew").use, Use::kUnknown);
  EXPECT_THAT(files.at("anew").reason, HasSubstr("another folder is at the path"));
  EXPECT_EQ(files.at("old.aside-2").use, Use::kAbandoned);
  EXPECT_EQ(files.at("stranger").use, Use::kUnknown);
}

TEST_F(StateFolderTest, AFileMadeBeforeItsTrainDirMayBeResumed) {
  VariableStoreOptions options = dir_.options();
  options.owner.train_dir = folders_.path();
  options.owner.folder_identity = "";
  FillVersion(Open(options).get(), 3, 1, "");
  EXPECT_EQ(List().at(FileNameOf(dir_.file())).use, Use::kResumable);
}

TEST_F(StateFolderTest, ARenamedTrainDirKeepsItsState) {
  OpenStore("killed", "run");
  std::filesystem::rename(folders_.path() + "/run", folders_.path() + "/old_run");
  EXPECT_EQ(Clean(), std::vector<std::string>{});
  {
    const auto store = OpenStore("killed", "old_run");
    EXPECT_EQ(store->newest(), 3u);
  }
  EXPECT_EQ(List().at("killed").use, Use::kUnknown) << "the server has not recovered";
  ASSERT_TRUE(OpenStore("killed", "old_run")->AdoptFile().ok());
  EXPECT_EQ(List().at("killed").use, Use::kResumable);
  EXPECT_EQ(List().at("killed").train_dir, folders_.path() + "/old_run");
}

TEST_F(StateFolderTest, APathThatIsTooLongForTheFileProvesNothing) {
  const std::string train_dir =
      std::string(200, 'a') + "/" + std::string(200, 'b') + "/" + std::string(200, 'c');
  std::filesystem::create_directories(folders_.path() + "/" + train_dir);
  OpenStore("killed", train_dir);
  EXPECT_EQ(List().at("killed").use, Use::kResumable);
  EXPECT_EQ(Clean(), std::vector<std::string>{});
}

TEST_F(StateFolderTest, CleanRemovesOnlyAbandonedAndNamedFiles) {
  const auto running = OpenStore("running", "a");
  OpenStore("killed", "b");
  OpenStore("lost.aside", "c");
  EXPECT_EQ(Clean(), std::vector<std::string>{"lost.aside"});
  EXPECT_EQ(Clean("running"), std::vector<std::string>{}) << "a file in use must not be removed";
  EXPECT_EQ(List().size(), 2u);
  EXPECT_EQ(Clean("killed"), std::vector<std::string>{"killed"});
  EXPECT_EQ(List().size(), 1u);
}

// A ps_server that is killed while it makes room for a file leaves the file without a header.
TEST_F(StateFolderTest, CleanRemovesWhatAKilledStartHasLeft) {
  const std::string name = std::string(32, 'a') + "-0-of-1.new";
  for (const std::string& file : {name, std::string("notes.new"), std::string(32, 'a')}) {
    std::ofstream(dir_.path() + "/" + file).flush();
  }
  EXPECT_THAT(List().at(name).reason, HasSubstr("killed before it had recovered"));
  EXPECT_EQ(Clean(), std::vector<std::string>{name});
  EXPECT_EQ(List().size(), 2u);
}

// A file that cannot be opened may be in use, so it is kept even if it is named.
TEST_F(StateFolderTest, CleanRefusesANamedFileThatCannotBeOpened) {
  const std::string path = dir_.path() + "/socket";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const auto all = [](const StateFileInfo&) { return true; };
  const auto removed = CleanStateFiles(files_, dir_.path(), all);
  EXPECT_TRUE(absl::IsUnavailable(removed.status())) << removed.status();
  EXPECT_THAT(std::string(removed.status().message()), HasSubstr("socket"));
  EXPECT_TRUE(std::filesystem::exists(path));
  close(fd);
}

}  // namespace
}  // namespace pushpull
