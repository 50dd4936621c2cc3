#include "common/base/output_folder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"

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

TEST_F(OutputFolderTest, AFailureLeavesNothing) {
  files_.SetFault(FileFault{.call = 4});  // after /old/a it cannot create /old/a/b
  EXPECT_FALSE(OutputFolder::Make(&files_, "/old/a/b/c").ok());
  EXPECT_FALSE(Exists("/old/a"));
}

}  // namespace
}  // namespace pushpull
