// Files that exist but cannot be read at the moment (EIO, ESTALE, EMFILE, ...): recovery must not
// fall back to an older checkpoint, and retention must not delete anything because of them.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "tests/common/checkpoint/checkpoint_testing.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kShard[] = "/shard-00000-of-00001.safetensors";
constexpr char kManifest[] = "/MANIFEST.json";

constexpr int kForEver = 1 << 30;

class UnreadableCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(memory_.MakeDirectory("/d"), absl::OkStatus());
    for (const uint64_t step : {100, 200}) {
      ASSERT_EQ(SaveTestCheckpoint(memory_, "/d", layout_, 1, step, 1), absl::OkStatus());
    }
    request_.run_id = kTestRunId;
    request_.layout = &layout_;
    request_.read_pause = absl::ZeroDuration();
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNewest() {
    return OpenNewestCheckpoint(files_, "/d", request_);
  }

  const VariableLayout layout_ = TestLayout(3);
  MemoryFileSystem memory_;
  FailingReads files_{&memory_};
  RecoveryRequest request_;
};

struct Failure {
  const char* name;
  FailingReads::What what;
  std::string ending;
  absl::Status status;  // the error that PosixFileSystem returns
};

class ReadFailureTest : public UnreadableCheckpointTest,
                        public ::testing::WithParamInterface<Failure> {};

TEST_P(ReadFailureTest, RecoveryWaitsForAPassingFailure) {
  const auto& [name, what, ending, status] = GetParam();
  for (int count = 1; count < request_.read_attempts; ++count) {
    files_.Fail(what, ending, status, count);
    const auto checkpoint = OpenNewest();
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->manifest().step, 200) << count << " failures";
    EXPECT_EQ(files_.failed(), count);
  }
}

TEST_P(ReadFailureTest, ALastingFailureEndsRecoveryInsteadOfFallingBack) {
  const auto& [name, what, ending, status] = GetParam();
  files_.Fail(what, ending, status, kForEver);
  const absl::Status end = OpenNewest().status();
  EXPECT_EQ(end.code(), status.code()) << end;
  EXPECT_EQ(IsPassing(end), IsPassing(status)) << end;
  EXPECT_THAT(std::string(end.message()),
              AllOf(HasSubstr(std::string(status.message())), HasSubstr("(tried 4 times)")));
  EXPECT_EQ(files_.failed(), request_.read_attempts);
}

TEST_P(ReadFailureTest, DeletesNothing) {
  const auto& [name, what, ending, status] = GetParam();
  files_.Fail(what, ending, status, kForEver);
  EXPECT_FALSE(ApplyRetention(files_, "/d", kTestRunId, {1, absl::InfiniteDuration()}).ok());
  EXPECT_EQ(*ListCheckpoints(memory_, "/d"), std::vector<uint64_t>({100, 200}));
}

absl::Status IoError(const char* what) { return MarkPassing(absl::InternalError(what)); }

const Failure kFailures[] = {
    {"ManifestEio", FailingReads::What::kRead, std::string("ckpt-00000200") + kManifest,
     IoError("read: Input/output error")},
    {"ManifestEstale", FailingReads::What::kOpen, std::string("ckpt-00000200") + kManifest,
     IoError("open: Stale file handle")},
    {"ShardEmfile", FailingReads::What::kOpen, std::string("ckpt-00000200") + kShard,
     absl::ResourceExhaustedError("open: Too many open files")},
    {"ShardEio", FailingReads::What::kRead, std::string("ckpt-00000200") + kShard,
     IoError("read: Input/output error")},
    {"ShardEacces", FailingReads::What::kOpen, std::string("ckpt-00000200") + kShard,
     absl::PermissionDeniedError("open: Permission denied")},
    {"FolderEio", FailingReads::What::kList, "/d", IoError("list: Input/output error")},
};

INSTANTIATE_TEST_SUITE_P(All, ReadFailureTest, ::testing::ValuesIn(kFailures),
                         [](const auto& info) { return std::string(info.param.name); });

// An error other than a failed read is still damage, so recovery takes the older checkpoint.
TEST_F(UnreadableCheckpointTest, AFileThatEndsEarlyIsDamaged) {
  files_.Fail(FailingReads::What::kRead, std::string("ckpt-00000200") + kShard,
              absl::OutOfRangeError("ends at byte 8"), kForEver);
  const auto checkpoint = OpenNewest();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().step, 100);
}

TEST_F(UnreadableCheckpointTest, IgnoresAnUnreadableOlderOneIfTheNewestVerifies) {
  files_.Fail(FailingReads::What::kRead, std::string("ckpt-00000100") + kShard,
              IoError("read: Input/output error"), kForEver);
  const auto checkpoint = OpenNewest();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().step, 200);
}

// Retention may delete a folder while it is being read; on a network file system, the reads then
// fail.
TEST_F(UnreadableCheckpointTest, SkipsAFolderThatIsDeletedMeanwhile) {
  files_.Fail(FailingReads::What::kRead, std::string("ckpt-00000200") + kShard,
              IoError("read: Stale file handle"), 1);
  files_.AtFailure(
      [this] { ASSERT_EQ(RemoveRecursively(memory_, "/d/ckpt-00000200"), absl::OkStatus()); });
  const auto checkpoint = OpenNewest();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().step, 100);
  EXPECT_EQ(files_.failed(), 1);
}

TEST_F(UnreadableCheckpointTest, RetriesARequestedCheckpoint) {
  files_.Fail(FailingReads::What::kOpen, std::string("ckpt-00000100") + kShard,
              absl::ResourceExhaustedError("open: Too many open files"), 2);
  EXPECT_TRUE(OpenCheckpoint(files_, "/d", 100, request_).ok());
  files_.Fail(FailingReads::What::kOpen, std::string("ckpt-00000100") + kShard,
              absl::ResourceExhaustedError("open: Too many open files"), kForEver);
  EXPECT_TRUE(absl::IsResourceExhausted(OpenCheckpoint(files_, "/d", 100, request_).status()));
}

// A server that is told to end while it verifies gigabytes may not look at the rest of them, and
// the checkpoint is not damaged.
TEST_F(UnreadableCheckpointTest, VerificationEndsWhenTheProcessIsToldToEnd) {
  bool stopped = false;
  request_.stopped = [&stopped] { return stopped; };
  files_.AtFailure([&stopped] { stopped = true; });
  for (const int64_t step : {-1, 200}) {
    stopped = false;
    files_.Fail(FailingReads::What::kRead, kShard, absl::OkStatus(), kForEver);
    const absl::Status status = OpenCheckpoint(files_, "/d", step, request_).status();
    EXPECT_EQ(status, absl::CancelledError(absl::StrCat("stopped while /d/ckpt-00000200", kShard,
                                                        " was being read")));
    EXPECT_EQ(files_.failed(), 3) << "reads: the digest and the header, but no tensor";
  }
}

TEST_F(UnreadableCheckpointTest, AnOpenCheckpointIsNotReadOnWhenTheProcessIsToldToEnd) {
  bool stopped = false;
  request_.stopped = [&stopped] { return stopped; };
  const auto checkpoint = OpenNewest();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<float> weights(layout_.total_elements());
  const ElementRange all{0, layout_.total_elements()};
  EXPECT_TRUE((*checkpoint)->ReadWeights(layout_, all, weights.data()).ok());
  stopped = true;
  EXPECT_TRUE(absl::IsCancelled((*checkpoint)->ReadWeights(layout_, all, weights.data())));
}

TEST_F(UnreadableCheckpointTest, AProcessThatIsToldToEndDoesNotReadAgain) {
  request_.stopped = [this] { return files_.failed() > 0; };
  files_.Fail(FailingReads::What::kOpen, kShard, IoError("open: Stale file handle"), kForEver);
  EXPECT_TRUE(absl::IsInternal(OpenNewest().status()));
  EXPECT_EQ(files_.failed(), 1);
}

TEST_F(UnreadableCheckpointTest, AShardThatCannotBeExaminedNowIsNotMissing) {
  files_.Fail(FailingReads::What::kGetInfo, kShard, IoError("stat: Input/output error"), 1);
  const absl::Status unreadable = SaveTestCheckpoint(files_, "/d", layout_, 1, 300, 1);
  EXPECT_TRUE(absl::IsInternal(unreadable)) << unreadable;
  EXPECT_TRUE(IsPassing(unreadable)) << unreadable;
  files_.Fail(FailingReads::What::kGetInfo, kShard, absl::NotFoundError("stat: no such file"), 1);
  const absl::Status missing = SaveTestCheckpoint(files_, "/d", layout_, 1, 300, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_FALSE(IsPassing(missing)) << missing;
}

}  // namespace
}  // namespace pushpull
