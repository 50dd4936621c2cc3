#include "common/checkpoint/train_dir_lock.h"

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ordinary_user.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(TrainDirLock, AnUnusedFolderIsRemovedWithTheParentsThatWereMissing) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/runs"), absl::OkStatus());
  for (const char* path : {"/runs/today/first", "/runs/today//first//", "/runs/today"}) {
    auto lock = TrainDirLock::Take(&files, path, /*task=*/0);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_THAT(*files.List(path), ElementsAre("LOCK"));
    lock->reset();
    EXPECT_THAT(*files.List("/runs"), ElementsAre()) << path;
  }
}

TEST(TrainDirLock, WhatWasThereBeforeStays) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_TRUE(TrainDirLock::Take(&files, "/d", /*task=*/0).ok());
  EXPECT_THAT(*files.List("/d"), ElementsAre());
  ASSERT_EQ(WriteFileAtomically(files, "/d/LOCK", ""), absl::OkStatus());
  ASSERT_TRUE(TrainDirLock::Take(&files, "/d", /*task=*/0).ok());
  EXPECT_THAT(*files.List("/d"), ElementsAre("LOCK"));
}

TEST(TrainDirLock, AUsedFolderStays) {
  for (const char* name : {"run_id", "LOCKS"}) {
    MemoryFileSystem files;
    {
      const auto lock = TrainDirLock::Take(&files, "/new/d", /*task=*/0);
      ASSERT_TRUE(lock.ok()) << lock.status();
      ASSERT_EQ(WriteFileAtomically(files, JoinPath("/new/d", name), "x"), absl::OkStatus());
    }
    EXPECT_THAT(*files.List("/new/d"), UnorderedElementsAre("LOCK", name));
  }
}

TEST(TrainDirLock, EachTaskIsServedOnce) {
  MemoryFileSystem files;
  auto first = TrainDirLock::Take(&files, "/d", /*task=*/0);
  auto second = TrainDirLock::Take(&files, "/d", /*task=*/1);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const absl::Status again = TrainDirLock::Take(&files, "/d", /*task=*/1).status();
  EXPECT_TRUE(absl::IsUnavailable(again)) << again;
  EXPECT_THAT(std::string(again.message()),
              HasSubstr("ps task 1 runs already in /d (/d/LOCK.1 is locked by another process)"));
  EXPECT_THAT(std::string(TrainDirLock::Take(&files, "/d", /*task=*/0).status().message()),
              HasSubstr("another server works in /d"));
  EXPECT_THAT(*files.List("/d"), ElementsAre("LOCK", "LOCK.1"));
  second->reset();
  EXPECT_THAT(*files.List("/d"), ElementsAre("LOCK"));
  first->reset();
  EXPECT_TRUE(absl::IsNotFound(files.GetInfo("/d").status()));
}

TEST(TrainDirLock, SaysWhatToDoInAFolderOfAnotherUser) {
  const TestFolder folder;
  PosixFileSystem files;
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  const OrdinaryUser user;
  const absl::Status refused = TrainDirLock::Take(&files, folder.path(), /*task=*/0).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("if " + folder.path() + " belongs to another user, start as that user"));
}

TEST(TrainDirLock, TheLastTaskRemovesTheFoldersWhicheverHasCreatedThem) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/runs"), absl::OkStatus());
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {1, 0, 2}, {2, 1, 0}}) {
    std::vector<std::unique_ptr<TrainDirLock>> locks;
    for (const int task : order) {
      auto lock = TrainDirLock::Take(&files, "/runs/today/d", task);
      ASSERT_TRUE(lock.ok()) << lock.status();
      locks.push_back(*std::move(lock));
    }
    for (auto& lock : locks) lock.reset();
    EXPECT_THAT(*files.List("/runs"), ElementsAre());
  }
}

TEST(TrainDirLock, TheTasksLeaveAnEmptyFolderThatWasThereBefore) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  auto first = TrainDirLock::Take(&files, "/d", /*task=*/0);
  auto second = TrainDirLock::Take(&files, "/d", /*task=*/1);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  first->reset();
  second->reset();
  EXPECT_THAT(*files.List("/d"), ElementsAre());
}

// Another process, whose start has failed, removes the folder after this one has seen that it
// exists.
TEST(TrainDirLock, AFolderThatVanishesBeforeTheLockIsCreatedAgain) {
  MemoryFileSystem files;
  FailingReads removing(&files);
  removing.Fail(FailingReads::What::kGetInfo, "/LOCK", absl::OkStatus(), 1);
  removing.AtFailure([&files] { EXPECT_EQ(files.RemoveDirectory("/new/d"), absl::OkStatus()); });
  auto lock = TrainDirLock::Take(&removing, "/new/d", /*task=*/0);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(removing.failed(), 1);
  EXPECT_THAT(*files.List("/new/d"), ElementsAre("LOCK"));
  lock->reset();
  EXPECT_TRUE(absl::IsNotFound(files.GetInfo("/new").status()));
}

TEST(TrainDirLock, AFolderThatKeepsVanishingIsGivenUp) {
  MemoryFileSystem files;
  FailingReads removing(&files);
  removing.AtFailure([&files] { EXPECT_EQ(files.RemoveDirectory("/new/d"), absl::OkStatus()); });
  removing.Fail(FailingReads::What::kGetInfo, "/LOCK", absl::OkStatus(), 4);
  EXPECT_EQ(TrainDirLock::Take(&removing, "/new/d", /*task=*/0).status(), absl::OkStatus());
  removing.Fail(FailingReads::What::kGetInfo, "/LOCK", absl::OkStatus(), 5);
  const absl::Status gone = TrainDirLock::Take(&removing, "/new/d", /*task=*/0).status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  EXPECT_EQ(removing.failed(), 5);
  EXPECT_TRUE(absl::IsNotFound(files.GetInfo("/new").status()));
}

TEST(TrainDirLock, FoldersAreRemovedIfTheLockCannotBeTaken) {
  int failures = 0;
  for (int call = 0; call < 10; ++call) {
    MemoryFileSystem files;
    files.SetFault(FileFault{FileFault::Kind::kIoError, call});
    const absl::Status taken = TrainDirLock::Take(&files, "/new/d", /*task=*/0).status();
    if (taken.ok()) continue;
    ++failures;
    EXPECT_TRUE(absl::IsInternal(taken)) << taken;
    EXPECT_TRUE(absl::IsNotFound(files.GetInfo("/new").status())) << "call " << call;
  }
  EXPECT_GE(failures, 3) << "neither folder nor the lock can be missing";
}

TEST(TrainDirLock, AFolderThatCannotBeListedStays) {
  MemoryFileSystem files;
  FailingReads failing(&files);
  {
    const auto lock = TrainDirLock::Take(&failing, "/new/d", /*task=*/0);
    ASSERT_TRUE(lock.ok());
    failing.Fail(FailingReads::What::kList, "/d", absl::InternalError("broken disk"), 1);
  }
  EXPECT_EQ(failing.failed(), 1);
  EXPECT_THAT(*files.List("/new/d"), ElementsAre("LOCK"));
}

}  // namespace
}  // namespace pushpull
