#include "common/checkpoint/train_dir.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

TEST(TrainDir, RefusesASecondServer) {
  const TestFolder folder;
  const std::string path = folder.path() + "/deep/down/";
  PosixFileSystem files;
  {
    const auto first = TrainDir::Open(&files, path);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = TrainDir::Open(&files, path).status();
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(std::string(second.message()), testing::HasSubstr("another server works in"));
  }
  EXPECT_TRUE(TrainDir::Open(&files, path).ok());
}

TEST(TrainDir, SweepsLeftoversOnly) {
  MemoryFileSystem files;
  for (const char* folder : {"/d", "/d/.tmp-ckpt-00000001-e1", "/d/.trash-ckpt-00000001-5-0",
                             "/d/ckpt-00000001", "/d/.other"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
  }
  ASSERT_EQ(WriteFileAtomically(files, "/d/.tmp-ckpt-00000001-e1/x", "y"), absl::OkStatus());
  const std::vector<std::string> before = *files.List("/d");
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(files.List("/d")->size(), before.size() + 1)
      << "the new file is LOCK; a refused start removes nothing";
  (*dir)->Sweep();
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{".other", "LOCK", "ckpt-00000001"}));
}

// Each start of a server sweeps, and an exporter or an evaluator may be writing into the folder.
TEST(TrainDir, SweepsTheServersOwnTemporaryFilesAlone) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  const std::vector<std::string> of_others = {
      ".tmp-EPOCH-",          ".tmp-EPOCH-77",          ".tmp-checkpoint-small.onnx-77-0",
      ".tmp-model.onnx-77-0", ".tmp-new-model.onnx-77", ".tmp-results.json-77-12"};
  for (const std::string& name : of_others) files.Corrupt("/d/" + name, "being written");
  for (const char* name :
       {".tmp-EPOCH-77-0", ".tmp-REPLICAS-77-1", ".tmp-run_id-77-2", ".tmp-checkpoint-77-3",
        ".tmp-pipeline.config-77-4", ".tmp-peer_secret-77-5"}) {
    files.Corrupt(absl::StrCat("/d/", name), "left by a killed server");
  }
  (*dir)->Sweep();
  std::vector<std::string> left = of_others;
  left.push_back("LOCK");
  EXPECT_EQ(*files.List("/d"), left);
}

// The server was killed between the rename that begins a deletion and its look at what an evaluator
// protects meanwhile.
TEST(TrainDir, SweepPutsAProtectedCheckpointBack) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  for (const char* folder :
       {"/d/eval", "/d/.trash-ckpt-00000001-5-0", "/d/.trash-ckpt-00000002-5-1",
        "/d/.trash-ckpt-00000003-5-2", "/d/.trash-.tmp-ckpt-00000001-e1-5-3"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
    ASSERT_EQ(WriteFileAtomically(files, absl::StrCat(folder, "/MANIFEST.json"), folder),
              absl::OkStatus());
  }
  ASSERT_EQ(WriteBestCheckpoint(files, "/d/eval", {1, "accuracy", 0.75}), absl::OkStatus());
  files.Corrupt("/d/eval/evaluating", R"({"step": 3})");
  (*dir)->Sweep();
  EXPECT_EQ(*files.List("/d"),
            (std::vector<std::string>{"LOCK", "ckpt-00000001", "ckpt-00000003", "eval"}));
  EXPECT_EQ(*ReadWholeFile(files, "/d/ckpt-00000001/MANIFEST.json"), "/d/.trash-ckpt-00000001-5-0");
}

TEST(TrainDir, SweepPutsBackOnlyAWholeCheckpointThatIsMissing) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  for (const char* folder : {"/d/eval", "/d/ckpt-00000001", "/d/.trash-ckpt-00000001-5-0"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
    ASSERT_EQ(WriteFileAtomically(files, absl::StrCat(folder, "/MANIFEST.json"), folder),
              absl::OkStatus());
  }
  ASSERT_EQ(files.MakeDirectory("/d/.trash-ckpt-00000002-5-1"), absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(files, "/d/eval", {1, "accuracy", 0.75}), absl::OkStatus());
  files.Corrupt("/d/eval/evaluating", R"({"step": 2})");
  (*dir)->Sweep();
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{"LOCK", "ckpt-00000001", "eval"}));
  EXPECT_EQ(*ReadWholeFile(files, "/d/ckpt-00000001/MANIFEST.json"), "/d/ckpt-00000001");
}

TEST(TrainDir, SweepKeepsTrashedCheckpointsWhileItIsUnknownWhichIsTheBest) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  for (const char* folder : {"/d/eval", "/d/.trash-ckpt-00000001-5-0", "/d/.trash-other-5-1"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
  }
  files.Corrupt("/d/eval/best_checkpoint", "unreadable");
  (*dir)->Sweep();
  EXPECT_EQ(*files.List("/d"),
            (std::vector<std::string>{".trash-ckpt-00000001-5-0", "LOCK", "eval"}));
}

TEST(TrainDir, SweepKeepsAProtectedCheckpointThatCannotBeLookedAt) {
  MemoryFileSystem disk;
  FailingReads files(&disk);
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  for (const char* folder : {"/d/eval", "/d/.trash-ckpt-00000001-5-0"}) {
    ASSERT_EQ(disk.MakeDirectory(folder), absl::OkStatus());
  }
  ASSERT_EQ(WriteFileAtomically(disk, "/d/.trash-ckpt-00000001-5-0/MANIFEST.json", "{}"),
            absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(disk, "/d/eval", {1, "accuracy", 0.75}), absl::OkStatus());
  files.Fail(FailingReads::What::kGetInfo, "/MANIFEST.json",
             absl::UnavailableError("stale file handle"), 1);
  (*dir)->Sweep();
  EXPECT_EQ(files.failed(), 1);
  EXPECT_EQ(*disk.List("/d"),
            (std::vector<std::string>{".trash-ckpt-00000001-5-0", "LOCK", "eval"}));
  (*dir)->Sweep();
  EXPECT_EQ(*disk.List("/d"), (std::vector<std::string>{"LOCK", "ckpt-00000001", "eval"}));
}

TEST(TrainDir, ANewEpochRemovesWhatOlderOnesHaveNotPublished) {
  MemoryFileSystem files;
  for (const char* folder : {"/d", "/d/.tmp-ckpt-00000009-e2", "/d/.tmp-ckpt-00000004-e3",
                             "/d/.tmp-other", "/d/ckpt-00000001"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
  }
  ASSERT_EQ(WriteFileAtomically(files, "/d/.tmp-ckpt-00000009-e2/x", "y"), absl::OkStatus());
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  ASSERT_EQ((*dir)->RemovePendingBefore(3), absl::OkStatus());
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{".tmp-ckpt-00000004-e3", ".tmp-other",
                                                         "LOCK", "ckpt-00000001"}));
}

TEST(TrainDir, MakesRoomWithoutTouchingWhatANewerServerWrites) {
  MemoryFileSystem files;
  for (const char* folder :
       {"/d", "/d/.tmp-ckpt-00000009-e2", "/d/.tmp-ckpt-00000004-e3", "/d/.tmp-other",
        "/d/.trash-ckpt-00000001-5-0", "/d/.trash-.tmp-ckpt-00000003-e1-5-1", "/d/ckpt-00000001"}) {
    ASSERT_EQ(files.MakeDirectory(folder), absl::OkStatus());
  }
  ASSERT_EQ(WriteFileAtomically(files, "/d/.tmp-ckpt-00000009-e2/x", "y"), absl::OkStatus());
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  (*dir)->MakeRoom(3);
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{".tmp-ckpt-00000004-e3", ".tmp-other",
                                                         "LOCK", "ckpt-00000001"}));
}

TEST(TrainDir, AFrozenServerCannotPublishAfterItsSuccessorHasBegun) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok()) << dir.status();
  ASSERT_EQ((*dir)->WriteEpoch(1), absl::OkStatus());
  ASSERT_EQ(files.MakeDirectory("/d/.tmp-ckpt-00000009-e1"), absl::OkStatus());
  CheckpointManifest manifest;
  manifest.epoch = 1;
  manifest.step = 9;
  // The publisher has looked into EPOCH, and freezes before it renames the folder.
  FailingReads frozen(&files);
  frozen.Fail(FailingReads::What::kOpen, "/EPOCH", absl::OkStatus(), 1);
  frozen.AtFailure([&] { EXPECT_EQ((*dir)->RemovePendingBefore(2), absl::OkStatus()); });
  const absl::Status published = PublishCheckpoint(frozen, "/d", manifest);
  EXPECT_TRUE(absl::IsNotFound(published)) << published;
  EXPECT_EQ(frozen.failed(), 1);
  EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{"EPOCH", "LOCK"}));
}

TEST(TrainDir, KeepsTheRunId) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(*ReadRunId(files, "/d"), std::nullopt);
  const std::string run_id = NewRunId();
  EXPECT_EQ(run_id.size(), 32);
  EXPECT_NE(run_id, NewRunId());
  ASSERT_EQ((*dir)->WriteRunId(run_id), absl::OkStatus());
  EXPECT_EQ(*ReadRunId(files, "/d"), run_id);
  files.Corrupt("/d/run_id", "garbage");
  EXPECT_TRUE(absl::IsDataLoss(ReadRunId(files, "/d").status()));
}

TEST(TrainDir, AFolderBelowNewFoldersSurvivesAPowerCut) {
  MemoryFileSystem files;
  const std::string run_id = NewRunId();
  {
    const auto dir = TrainDir::Open(&files, "/jobs/digits/train");
    ASSERT_TRUE(dir.ok());
    ASSERT_EQ((*dir)->WriteRunId(run_id), absl::OkStatus());
  }
  files.Reboot(Survival::kNothing, 1);
  const auto dir = TrainDir::Open(&files, "/jobs/digits/train");
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(*ReadRunId(files, "/jobs/digits/train"), run_id);
}

TEST(TrainDir, KeepsTheEpoch) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(*ReadEpoch(files, "/d"), 0) << "there is no file";
  for (const uint64_t epoch : {1, 41, 42}) {
    ASSERT_EQ((*dir)->WriteEpoch(epoch), absl::OkStatus());
    EXPECT_EQ(*ReadEpoch(files, "/d"), epoch);
  }
  EXPECT_EQ(*ReadWholeFile(files, "/d/EPOCH"), absl::StrFormat("42 %08x\n", Crc32c("42", 2)));
  files.Corrupt("/d/EPOCH", "50\n");
  EXPECT_EQ(*ReadEpoch(files, "/d"), 50) << "a number written by hand counts";
}

// A damaged EPOCH that was read as a smaller number would let a server use an epoch again.
TEST(TrainDir, ADamagedEpochIsRefused) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  std::string whole;
  const auto expect_refused = [&](const std::string& damaged) {
    files.Corrupt("/d/EPOCH", damaged);
    const absl::Status status = ReadEpoch(files, "/d").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << '"' << damaged << "\": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/d/EPOCH"));
  };
  // The checksum of 11 has decimal digits only, so with its space damaged the line is a number.
  for (const uint64_t epoch : {11, 123}) {
    ASSERT_EQ((*dir)->WriteEpoch(epoch), absl::OkStatus());
    whole = *ReadWholeFile(files, "/d/EPOCH");
    for (size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size));
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      expect_refused(damaged);
    }
  }
}

TEST(TrainDir, KeepsTheNumberOfReplicas) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(*(*dir)->ReadReplicas(), std::nullopt);
  ASSERT_EQ((*dir)->WriteReplicas(12), absl::OkStatus());
  EXPECT_EQ(*(*dir)->ReadReplicas(), 12u);
  EXPECT_EQ(*ReadWholeFile(files, "/d/REPLICAS"), absl::StrFormat("12 %08x\n", Crc32c("12", 2)));
  ASSERT_EQ((*dir)->WriteReplicas(3), absl::OkStatus());
  EXPECT_EQ(*(*dir)->ReadReplicas(), 3u);
  files.Corrupt("/d/REPLICAS", "5\n");
  EXPECT_EQ(*(*dir)->ReadReplicas(), 5u) << "a number written by hand counts";
}

TEST(TrainDir, ADamagedNumberOfReplicasIsRefused) {
  MemoryFileSystem files;
  const auto dir = TrainDir::Open(&files, "/d");
  ASSERT_TRUE(dir.ok());
  ASSERT_EQ((*dir)->WriteReplicas(12), absl::OkStatus());
  const std::string whole = *ReadWholeFile(files, "/d/REPLICAS");
  const auto expect_refused = [&](const std::string& damaged) {
    files.Corrupt("/d/REPLICAS", damaged);
    const absl::Status status = (*dir)->ReadReplicas().status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << '"' << damaged << "\": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/d/REPLICAS"));
  };
  for (size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    expect_refused(damaged);
  }
  expect_refused("0\n");
  expect_refused("4294967296\n");
}

}  // namespace
}  // namespace pushpull
