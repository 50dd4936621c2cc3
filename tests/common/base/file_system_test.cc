#include "common/base/file_system.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// Tests the contract of FileSystem with the operating system's files and with MemoryFileSystem,
// which other tests use.
class FileSystemTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      files_ = std::make_unique<PosixFileSystem>();
      root_ = folder_.path();
    } else {
      files_ = std::make_unique<MemoryFileSystem>();
      root_ = "/root";
      ASSERT_EQ(files_->MakeDirectory(root_), absl::OkStatus());
    }
  }

  std::string Path(const std::string& name) const { return JoinPath(root_, name); }
  void Write(const std::string& name, const std::string& contents) {
    const auto file = files_->OpenForWrite(Path(name), FileSystem::WriteMode::kTruncate);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ((*file)->Append(contents), absl::OkStatus());
    ASSERT_EQ((*file)->Sync(), absl::OkStatus());
    ASSERT_EQ((*file)->Close(), absl::OkStatus());
  }

  const TestFolder folder_;
  std::unique_ptr<FileSystem> files_;
  std::string root_;
};

TEST_P(FileSystemTest, WritesAndReads) {
  Write("a", "hello world");
  Write("a", "hello");
  EXPECT_EQ(*ReadWholeFile(*files_, Path("a")), "hello");
  const auto file = files_->OpenForRead(Path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size_bytes(), 5);
  char buffer[3];
  ASSERT_EQ((*file)->ReadAt(2, buffer, 3), absl::OkStatus());
  EXPECT_EQ(std::string(buffer, 3), "llo");
  for (const int64_t offset : {3, 5, 100}) {
    const absl::Status status = (*file)->ReadAt(offset, buffer, 3);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
    EXPECT_EQ(status.message(),
              absl::StrCat(Path("a"), " ends at byte 5, expected at least ", offset + 3, " bytes"));
  }
  const auto mapped = (*file)->Map();
  ASSERT_TRUE(mapped.ok());
  ASSERT_EQ(files_->RemoveFile(Path("a")), absl::OkStatus());
  EXPECT_EQ(std::string(mapped->data, mapped->size_bytes), "hello");
  ASSERT_EQ((*file)->ReadAt(0, buffer, 3), absl::OkStatus());
  EXPECT_EQ(std::string(buffer, 3), "hel");
}

TEST_P(FileSystemTest, ErrorsNameThePath) {
  Write("a", "x");
  ASSERT_EQ(files_->MakeDirectory(Path("folder")), absl::OkStatus());
  const absl::Status missing = files_->OpenForRead(Path("none")).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr(Path("none")));
  EXPECT_TRUE(absl::IsNotFound(files_->RemoveFile(Path("none"))));
  EXPECT_TRUE(absl::IsNotFound(files_->List(Path("none")).status()));
  EXPECT_TRUE(absl::IsNotFound(files_->GetInfo(Path("none")).status()));
  EXPECT_TRUE(absl::IsNotFound(files_->MakeDirectory(Path("none/below"))));
  EXPECT_TRUE(absl::IsNotFound(files_->Rename(Path("none"), Path("b"))));
  EXPECT_TRUE(absl::IsNotFound(files_->Exchange(Path("none"), Path("a"))));
  EXPECT_TRUE(absl::IsAlreadyExists(files_->MakeDirectory(Path("folder"))));
  EXPECT_TRUE(absl::IsAlreadyExists(
      files_->OpenForWrite(Path("a"), FileSystem::WriteMode::kCreateNew).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(files_->OpenForRead(Path("folder")).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeDirectories(*files_, Path("a"))));
}

TEST_P(FileSystemTest, ReportsFreeSpace) {
  const auto free = files_->FreeBytes(root_);
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0);
  EXPECT_TRUE(absl::IsNotFound(files_->FreeBytes(Path("none")).status()));
}

TEST(PosixFileSystemTest, ALinkToAFolderIsAFolder) {
  const TestFolder test_folder;
  const std::string& folder = test_folder.path();
  test_folder.MakeFolder("scratch");
  PosixFileSystem files;
  std::filesystem::create_directory_symlink(folder + "/scratch", folder + "/link");
  std::filesystem::create_directory_symlink(folder + "/gone", folder + "/dangling");
  EXPECT_EQ(MakeDirectories(files, folder + "/link"), absl::OkStatus());
  EXPECT_EQ(MakeDirectories(files, folder + "/link/run"), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_directory(folder + "/scratch/run"));
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeDirectories(files, folder + "/dangling")));
}

// mkdir fails below /proc although the parent folder exists.
TEST(PosixFileSystemTest, CannotCreateAFolderInProc) {
  PosixFileSystem files;
  EXPECT_TRUE(absl::IsNotFound(MakeDirectories(files, "/proc/none")));
  EXPECT_TRUE(absl::IsNotFound(MakeDirectories(files, "/proc/none/deeper/")));
}

TEST_P(FileSystemTest, RenamesAndExchanges) {
  Write("a", "1");
  Write("b", "2");
  ASSERT_EQ(files_->Rename(Path("a"), Path("b")), absl::OkStatus());
  EXPECT_EQ(*ReadWholeFile(*files_, Path("b")), "1");
  EXPECT_EQ(*files_->List(root_), std::vector<std::string>{"b"});

  ASSERT_EQ(MakeDirectories(*files_, Path("x/deep/er")), absl::OkStatus());
  ASSERT_EQ(MakeDirectories(*files_, Path("x/deep/er")), absl::OkStatus());
  ASSERT_EQ(files_->MakeDirectory(Path("y")), absl::OkStatus());
  // A target that is an empty folder is refused too.
  EXPECT_TRUE(absl::IsAlreadyExists(files_->Rename(Path("x"), Path("y"))));
  EXPECT_TRUE(absl::IsAlreadyExists(files_->RemoveDirectory(Path("x"))));
  ASSERT_EQ(files_->Exchange(Path("x"), Path("y")), absl::OkStatus());
  EXPECT_EQ(*files_->List(Path("y")), std::vector<std::string>{"deep"});
  EXPECT_TRUE(files_->List(Path("x"))->empty());
  ASSERT_EQ(files_->RemoveDirectory(Path("x")), absl::OkStatus());
  ASSERT_EQ(files_->Rename(Path("y"), Path("x")), absl::OkStatus());
  EXPECT_TRUE(files_->GetInfo(Path("x/deep/er"))->is_directory);
}

TEST_P(FileSystemTest, OnlyOneHolderGetsALock) {
  {
    const auto lock = files_->Lock(Path("LOCK"));
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(absl::IsUnavailable(files_->Lock(Path("LOCK")).status()));
  }
  EXPECT_TRUE(files_->Lock(Path("LOCK")).ok());
}

// A holder may open the file that the last one removes.
TEST_P(FileSystemTest, OnlyOneHolderGetsALockWhoseFileIsRemoved) {
  std::atomic<int> holders = 0;
  std::atomic<int> left = 3000;
  const auto work = [&] {
    while (left > 0) {
      const auto lock = files_->Lock(Path("LOCK"));
      if (!lock.ok()) continue;
      EXPECT_EQ(++holders, 1);
      --left;
      --holders;
      EXPECT_EQ(files_->RemoveFile(Path("LOCK")), absl::OkStatus());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(FileSystemTest, AtomicWriteLeavesNoTemporary) {
  ASSERT_EQ(WriteFileAtomically(*files_, Path("f"), "one"), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*files_, Path("f"), "two"), absl::OkStatus());
  EXPECT_EQ(*ReadWholeFile(*files_, Path("f")), "two");
  EXPECT_EQ(*files_->List(root_), std::vector<std::string>{"f"});
}

// In a container every start of a server has the same process number, and so may choose a name that
// the start before has used.
TEST(WriteFileAtomically, PassesOverTemporaryFilesThatAKilledProcessLeft) {
  MemoryFileSystem files;
  ASSERT_EQ(MakeDirectories(files, "/d"), absl::OkStatus());
  files.SetFault(FileFault{FileFault::Kind::kCrash, 2});
  ASSERT_FALSE(WriteFileAtomically(files, "/d/f", "lost").ok());
  files.Reboot(Survival::kEverything, 1);
  const std::vector<std::string> left = *files.List("/d");
  ASSERT_EQ(left.size(), 1u);
  const size_t number = left[0].rfind('-') + 1;
  const int last = std::stoi(left[0].substr(number));
  std::vector<std::string> taken;
  for (int i = 1; i <= 3; ++i) {
    taken.push_back("/d/" + left[0].substr(0, number) + std::to_string(last + i));
    files.Corrupt(taken.back(), "left");
  }
  ASSERT_EQ(WriteFileAtomically(files, "/d/f", "new"), absl::OkStatus());
  EXPECT_EQ(*ReadWholeFile(files, "/d/f"), "new");
  for (const std::string& path : taken) EXPECT_EQ(*ReadWholeFile(files, path), "left") << path;
}

TEST(MakeDirectories, EveryFolderSurvivesAPowerCut) {
  MemoryFileSystem files;
  ASSERT_EQ(MakeDirectories(files, "/a/b/c/"), absl::OkStatus());
  ASSERT_EQ(MakeDirectories(files, "/a/b/d"), absl::OkStatus());
  files.Reboot(Survival::kNothing, 1);
  EXPECT_TRUE(files.GetInfo("/a/b/c").ok());
  EXPECT_TRUE(files.GetInfo("/a/b/d").ok());
}

TEST(MakeDirectories, AFolderThatCannotBeSyncedIsStillMade) {
  MemoryFileSystem files;
  files.SetFault(FileFault{FileFault::Kind::kIoError, 1});
  EXPECT_EQ(MakeDirectories(files, "/a"), absl::OkStatus());
  EXPECT_EQ(files.calls(), 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileSystemTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Posix" : "Memory"; });

TEST(PosixFileSystem, ReportsAFullDisk) {
  PosixFileSystem files;
  if (!files.GetInfo("/dev/full").ok()) GTEST_SKIP() << "no /dev/full here";
  const auto file = files.OpenForWrite("/dev/full", FileSystem::WriteMode::kTruncate);
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status status = (*file)->Append("x");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dev/full"));
}

TEST(PosixFileSystem, AWrongPathDoesNotPass) {
  PosixFileSystem files;
  const auto open = [&](const std::string& path) {
    return files.OpenForWrite(path, FileSystem::WriteMode::kTruncate).status();
  };
  const absl::Status folder = open(testing::TempDir());
  EXPECT_TRUE(absl::IsAlreadyExists(folder)) << folder;
  EXPECT_FALSE(IsPassing(folder)) << folder;
  const absl::Status missing = open("/none/file");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_FALSE(IsPassing(missing)) << missing;
  if (geteuid() == 0) return;  // root may write to any folder
  const absl::Status forbidden = open("/forbidden");
  EXPECT_TRUE(absl::IsPermissionDenied(forbidden)) << forbidden;
  EXPECT_FALSE(IsPassing(forbidden)) << forbidden;
}

TEST(PosixFileSystem, SaysWhatToDoWhenTooManyFilesAreOpen) {
  PosixFileSystem files;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = files.OpenForRead("/proc/self/stat").status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(IsPassing(status)) << "a new process has the same limit: " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -n"));
}

TEST(PosixFileSystem, APathThatCannotExistIsBadInput) {
  PosixFileSystem files;
  const absl::Status too_long = files.OpenForRead("/" + std::string(300, 'a')).status();
  EXPECT_TRUE(absl::IsInvalidArgument(too_long)) << too_long;
  const TestFolder folder;
  const std::string loop = folder.path() + "/loop";
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  const absl::Status circular = files.OpenForRead(loop).status();
  EXPECT_TRUE(absl::IsInvalidArgument(circular)) << circular;
}

TEST(ReadWholeFile, RefusesAFileThatWouldFillTheMemory) {
  PosixFileSystem files;
  const TestFolder folder;
  const std::string path = folder.Write("huge", "");
  ASSERT_EQ(truncate(path.c_str(), (int64_t{4} << 30) + 1), 0);
  const absl::Status status = ReadWholeFile(files, path).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path + " has 4294967297 bytes, expected at most 4294967296"));
}

TEST(PosixFileSystem, RefusesWhatIsNotARegularFile) {
  PosixFileSystem files;
  EXPECT_TRUE(absl::IsFailedPrecondition(files.OpenForRead("/dev/null").status()));
}

// Checks the model of a power cut itself: what survives and what is lost.
TEST(MemoryFileSystem, ForgetsWhatWasNotSynced) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(files.SyncDirectory("/"), absl::OkStatus());
  const auto write = [&](const std::string& path, bool sync) {
    const auto file = files.OpenForWrite(path, FileSystem::WriteMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ((*file)->Append("data"), absl::OkStatus());
    if (sync) {
      ASSERT_EQ((*file)->Sync(), absl::OkStatus());
    }
  };
  write("/d/synced", true);
  write("/d/name_only", false);
  ASSERT_EQ(files.SyncDirectory("/d"), absl::OkStatus());
  write("/d/bytes_only", true);
  files.Reboot(Survival::kNothing, 0);
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{"name_only", "synced"}));
  EXPECT_EQ(*ReadWholeFile(files, "/d/synced"), "data");
  EXPECT_EQ(*ReadWholeFile(files, "/d/name_only"), "");
}

TEST(PathTest, SplitsIntoFolderAndName) {
  EXPECT_EQ(FolderOf("a/b/c.png"), "a/b");
  EXPECT_EQ(FolderOf("c.png"), ".");
  EXPECT_EQ(FolderOf("/c.png"), "/");
  EXPECT_EQ(FileNameOf("a/b/c.png"), "c.png");
  EXPECT_EQ(FileNameOf("c.png"), "c.png");
  EXPECT_EQ(FileNameOf("a/"), "");
}

}  // namespace
}  // namespace pushpull
