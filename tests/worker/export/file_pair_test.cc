#include "worker/export/file_pair.h"

#include <algorithm>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Contents(FileSystem& files, const std::string& path) {
  const auto contents = ReadWholeFile(files, path);
  return contents.ok() ? *contents : "none";
}

std::unique_ptr<MemoryFileSystem> FolderWith(const std::string& large, const std::string& small) {
  auto files = std::make_unique<MemoryFileSystem>();
  EXPECT_TRUE(files->MakeDirectory("/out").ok());
  EXPECT_TRUE(files->SyncDirectory("/").ok());
  if (!large.empty()) {
    EXPECT_TRUE(WriteFileAtomically(*files, "/out/large", large).ok());
  }
  if (!small.empty()) {
    EXPECT_TRUE(WriteFileAtomically(*files, "/out/small", small).ok());
  }
  return files;
}

absl::Status WriteNewPair(FileSystem& files) {
  return WriteFilePair(files, {"/out/large", "new large"}, {"/out/small", "new small"});
}

TEST(FilePairTest, WritesBothFiles) {
  for (const char* before : {"", "old"}) {
    const auto files = FolderWith(before, before);
    ASSERT_TRUE(WriteNewPair(*files).ok());
    EXPECT_EQ(Contents(*files, "/out/large"), "new large");
    EXPECT_EQ(Contents(*files, "/out/small"), "new small");
    EXPECT_THAT(*files->List("/out"), ElementsAre("large", "small"));
    files->Reboot(Survival::kNothing, 1);
    EXPECT_EQ(Contents(*files, "/out/large"), "new large");
    EXPECT_EQ(Contents(*files, "/out/small"), "new small");
  }
}

// Lets each call fail in turn, with and without files from before.
TEST(FilePairTest, AFailureLeavesBothFilesAsTheyWere) {
  struct Before {
    std::string large, small;
  };
  for (const Before& before : {Before{"", ""}, Before{"old large", "old small"},
                               Before{"old large", ""}, Before{"", "old small"}}) {
    int failures = 0;
    for (int64_t call = 0;; ++call) {
      SCOPED_TRACE(testing::Message()
                   << "\"" << before.large << "\", \"" << before.small << "\", call " << call);
      const auto files = FolderWith(before.large, before.small);
      files->SetFault(FileFault{.kind = FileFault::Kind::kDiskFull, .call = call});
      const absl::Status status = WriteNewPair(*files);
      const bool reached = files->calls() > call;
      files->SetFault(std::nullopt);
      if (!reached) break;
      const auto names = files->List("/out");
      ASSERT_TRUE(names.ok());
      EXPECT_EQ(std::count_if(names->begin(), names->end(),
                              [](const std::string& name) { return name[0] == '.'; }),
                0);
      const std::string large = Contents(*files, "/out/large");
      const std::string small = Contents(*files, "/out/small");
      // The failing call may be the removal of a temporary file that is no longer there, or the
      // last sync.
      if (status.ok() || large == "new large") {
        EXPECT_EQ(large, "new large");
        EXPECT_EQ(small, "new small");
        continue;
      }
      ++failures;
      EXPECT_EQ(large, before.large.empty() ? "none" : before.large);
      EXPECT_EQ(small, before.small.empty() ? "none" : before.small);
    }
    EXPECT_GE(failures, 10);  // two files of five calls each, and a rename of each
  }
}

TEST(FilePairTest, AFolderInPlaceOfAFileIsAnError) {
  for (const char* name : {"/out/large", "/out/small"}) {
    SCOPED_TRACE(name);
    const auto files = FolderWith("", "");
    ASSERT_TRUE(files->MakeDirectory(name).ok());
    const absl::Status status = WriteNewPair(*files);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(name));
    EXPECT_THAT(*files->List("/out"), ElementsAre(FileNameOf(name)));
  }
}

}  // namespace
}  // namespace pushpull
