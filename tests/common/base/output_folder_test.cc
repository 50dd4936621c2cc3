#include "common/base/output_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ordinary_user.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

class OutputFolderTest : public ::testing::Test {
 protected:
  OutputFolderTest() { EXPECT_TRUE(files_.MakeDirectory("/old").ok()); }

  bool Exists(const std::string& path) { return files_.GetInfo(path).ok(); }

  MemoryFileSystem files_;
};

TEST_F(OutputFolderTest, EmptyFoldersGoThatItHasCreated) {
  {
    const auto folder = OutputFolder::Make(&files_, "/old/a/b//");
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(Exists("/old/a/b"));
  }
  EXPECT_FALSE(Exists("/old/a"));
  { ASSERT_TRUE(OutputFolder::Make(&files_, "/old").ok()); }
  EXPECT_TRUE(Exists("/old"));
}

TEST_F(OutputFolderTest, FoldersStayThatHoldSomething) {
  {
    const auto folder = OutputFolder::Make(&files_, "/old/a/b");
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE(WriteFileAtomically(files_, "/old/a/file", "x").ok());
  }
  EXPECT_FALSE(Exists("/old/a/b"));
  EXPECT_TRUE(Exists("/old/a/file"));
}

TEST_F(OutputFolderTest, ACheckWhetherAFolderTakesFilesLeavesNothing) {
  EXPECT_EQ(CheckTakesFiles(&files_, "/old"), absl::OkStatus());
  EXPECT_EQ(CheckTakesFiles(&files_, "/old/a/b"), absl::OkStatus());
  ASSERT_TRUE(WriteFileAtomically(files_, "/old/file", "x").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckTakesFiles(&files_, "/old/file/a")));
  EXPECT_EQ(*files_.List("/old"), std::vector<std::string>{"file"});
}

TEST_F(OutputFolderTest, AFolderOfAnotherUserTakesNoFiles) {
  const TestFolder folder;
  folder.MakeFolder("other");
  std::filesystem::permissions(folder.path() + "/other", std::filesystem::perms::owner_exec);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  PosixFileSystem disk;
  const OrdinaryUser user;
  for (const std::string& path : {folder.path() + "/other", folder.path() + "/other/new"}) {
    const absl::Status refused = CheckTakesFiles(&disk, path);
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  }
  EXPECT_EQ(CheckTakesFiles(&disk, folder.path() + "/new"), absl::OkStatus());
}

TEST_F(OutputFolderTest, AFailureLeavesNothing) {
  files_.SetFault(FileFault{.call = 4});  // after /old/a it cannot create /old/a/b
  EXPECT_FALSE(OutputFolder::Make(&files_, "/old/a/b/c").ok());
  EXPECT_FALSE(Exists("/old/a"));
}

}  // namespace
}  // namespace pushpull
