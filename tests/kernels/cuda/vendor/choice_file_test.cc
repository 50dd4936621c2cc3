#include "kernels/cuda/vendor/choice_file.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using testing::Optional;

TEST(ChoiceFileTest, AnotherProcessReadsWhatOneHasWritten) {
  MemoryFileSystem files;
  ChoiceFile first(&files, "/cache/pushpull/choices", "H100, driver 13000");
  EXPECT_EQ(first.Find("forward a"), std::nullopt);
  EXPECT_EQ(first.Add("forward a", "cudnn/0 own"), "cudnn/0 own");
  EXPECT_EQ(first.Add("forward b", "own own"), "own own");
  const ChoiceFile second(&files, "/cache/pushpull/choices", "H100, driver 13000");
  EXPECT_THAT(second.Find("forward a"), Optional(std::string("cudnn/0 own")));
  EXPECT_THAT(second.Find("forward b"), Optional(std::string("own own")));
  const ChoiceFile other(&files, "/cache/pushpull/choices", "H100, driver 14000");
  EXPECT_EQ(other.Find("forward a"), std::nullopt);
}

TEST(ChoiceFileTest, OfTwoProcessesTheFirstDecides) {
  MemoryFileSystem files;
  ChoiceFile first(&files, "/cache/choices", "H100"), second(&files, "/cache/choices", "H100");
  EXPECT_EQ(first.Add("a", "own own"), "own own");
  EXPECT_EQ(second.Add("b", "cudnn/0 own"), "cudnn/0 own");
  EXPECT_EQ(second.Add("a", "cudnn/1 own"), "own own");
  EXPECT_THAT(second.Find("a"), Optional(std::string("own own")));
  const ChoiceFile third(&files, "/cache/choices", "H100");
  EXPECT_THAT(third.Find("a"), Optional(std::string("own own")));
  EXPECT_THAT(third.Find("b"), Optional(std::string("cudnn/0 own")));
}

TEST(ChoiceFileTest, FindsWhatAnotherProcessHasAddedSince) {
  MemoryFileSystem files;
  ChoiceFile first(&files, "/cache/choices", "H100"), second(&files, "/cache/choices", "H100");
  EXPECT_EQ(second.Add("b", "cudnn/0 own"), "cudnn/0 own");
  EXPECT_EQ(first.Add("a", "own own"), "own own");
  EXPECT_EQ(second.Find("a"), std::nullopt);
  EXPECT_THAT(second.FindAgain("a"), Optional(std::string("own own")));
  EXPECT_THAT(second.Find("a"), Optional(std::string("own own")));
  EXPECT_THAT(second.FindAgain("b"), Optional(std::string("cudnn/0 own")));
  EXPECT_EQ(second.FindAgain("c"), std::nullopt);
  ChoiceFile none(&files, "", "H100");
  EXPECT_EQ(none.FindAgain("a"), std::nullopt);
}

TEST(ChoiceFileTest, ReplacesLinesThatAreNoChoices) {
  MemoryFileSystem files;
  ASSERT_TRUE(MakeDirectories(files, "/cache").ok());
  ASSERT_TRUE(
      WriteFileAtomically(files, "/cache/choices", "torn\nH100\ta\tcudnn/0 own\nH100\tb\t\n").ok());
  ChoiceFile file(&files, "/cache/choices", "H100");
  EXPECT_THAT(file.Find("a"), Optional(std::string("cudnn/0 own")));
  EXPECT_EQ(file.Find("b"), std::nullopt);
  file.Add("b", "own own");
  EXPECT_EQ(ReadWholeFile(files, "/cache/choices").value(),
            "H100\ta\tcudnn/0 own\nH100\tb\town own\n");
}

TEST(ChoiceFileTest, AChoiceHoldsForTheProcessIfTheFileCannotBeWritten) {
  MemoryFileSystem files;
  ASSERT_TRUE(MakeDirectories(files, "/cache").ok());
  ASSERT_TRUE(WriteFileAtomically(files, "/cache/file", "").ok());
  ChoiceFile file(&files, "/cache/file/choices", "H100");
  EXPECT_EQ(file.Add("a", "own own"), "own own");
  EXPECT_THAT(file.Find("a"), Optional(std::string("own own")));
  ChoiceFile none(&files, "", "H100");
  EXPECT_EQ(none.Add("a", "cudnn/0 own"), "cudnn/0 own");
  EXPECT_THAT(none.Find("a"), Optional(std::string("cudnn/0 own")));
}

TEST(ChoiceFileTest, WarnsOnceIfThereIsNoFile) {
  MemoryFileSystem files;
  ChoiceFile none(&files, "", "H100");
  testing::internal::CaptureStderr();
  none.Add("a", "own own");
  none.Add("b", "own own");
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t at = log.find("are not kept");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_NE(log.find("no folder is known for them; set XDG_CACHE_HOME or HOME", at),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("are not kept", at + 1), std::string::npos) << log;
}

TEST(ChoiceFileTest, NoChoiceIsLostIfProcessesAddAtTheSameTime) {
  const TestFolder folder;
  const std::string path = folder.path() + "/choices";
  PosixFileSystem files;
  constexpr int kWriters = 4, kKeys = 20;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&files, &path, w] {
      ChoiceFile file(&files, path, "H100");
      for (int k = 0; k < kKeys; ++k) file.Add(absl::StrCat(w, " ", k), "own own");
    });
  }
  for (std::thread& writer : writers) writer.join();
  const ChoiceFile all(&files, path, "H100");
  for (int w = 0; w < kWriters; ++w) {
    for (int k = 0; k < kKeys; ++k) {
      EXPECT_THAT(all.Find(absl::StrCat(w, " ", k)), Optional(std::string("own own")));
    }
  }
}

}  // namespace
}  // namespace pushpull
