#include "worker/eval/checkpoint_watcher.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/worker/eval/eval_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointWatcherTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(files_.MakeDirectory("/d"), absl::OkStatus()); }

  void Publish(uint64_t epoch, uint64_t step, bool done = false, uint64_t num_images = 0) {
    PublishUnseen({.epoch = epoch, .step = step, .training_done = done, .num_images = num_images});
    ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  }
  // Publishes a checkpoint that the watcher does not see before its next Poll.
  void PublishUnseen(const TinyCheckpoint& checkpoint) {
    ASSERT_EQ(PublishTiny(files_, "/d", layout_, checkpoint), absl::OkStatus());
  }
  // Takes a checkpoint and returns its step, or 0 if there is none.
  uint64_t Take() {
    const std::unique_ptr<Checkpoint> checkpoint = watcher_.Take();
    return checkpoint == nullptr ? 0 : checkpoint->manifest().step;
  }
  void Damage(const std::string& path) {
    std::string bytes = *ReadWholeFile(files_, path);
    bytes.back() ^= 1;
    files_.Corrupt(path, bytes);
  }

  const VariableLayout layout_ = *VariableLayout::Create({MakeVariable("w", {5})});
  MemoryFileSystem files_;
  CheckpointWatcher watcher_{&files_, "/d"};
};

TEST_F(CheckpointWatcherTest, TakesTheNewestFirstAndEachOnce) {
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.has_new());
  EXPECT_EQ(Take(), 0);
  for (const uint64_t step : {10, 20, 30}) Publish(1, step);
  EXPECT_EQ(Take(), 30);
  Publish(1, 40);
  EXPECT_EQ(Take(), 40);
  EXPECT_THAT(watcher_.untaken(), ElementsAre(10, 20));
  EXPECT_EQ(Take(), 20);
  EXPECT_EQ(Take(), 10);
  EXPECT_EQ(Take(), 0);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.has_new());
}

// A file that cannot be read now is not damaged: the checkpoint stays new, and no older one is
// taken instead.
TEST_F(CheckpointWatcherTest, RetriesACheckpointThatCannotBeRead) {
  FailingReads failing(&files_);
  CheckpointWatcher watcher(&failing, "/d");
  for (const uint64_t step : {10, 20}) Publish(1, step);
  const std::string folder = "/d/" + CheckpointName(20);
  const absl::Status stale = absl::InternalError("read: Stale file handle");
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  failing.Fail(FailingReads::What::kRead, ".safetensors", stale, 1);
  EXPECT_EQ(watcher.Take(), nullptr);
  EXPECT_THAT(watcher.unreadable(), ElementsAre(HasSubstr("read: Stale file handle")));
  EXPECT_THAT(watcher.refusals(), ElementsAre());
  EXPECT_THAT(watcher.untaken(), ElementsAre(10, 20));
  // The same holds if the manifest cannot be read.
  failing.Fail(FailingReads::What::kRead, folder + "/MANIFEST.json", stale, 1);
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  EXPECT_THAT(watcher.unreadable(), ElementsAre(HasSubstr("read: Stale file handle")));
  EXPECT_THAT(watcher.refusals(), ElementsAre());
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  EXPECT_THAT(watcher.unreadable(), ElementsAre());
  const std::unique_ptr<Checkpoint> checkpoint = watcher.Take();
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->manifest().step, 20);
}

// The newest checkpoint is damaged, and the one before it cannot be read now.
TEST_F(CheckpointWatcherTest, WaitsForAnUnreadableCheckpointOrPassesItOver) {
  using Unreadable = CheckpointWatcher::Unreadable;
  FailingReads failing(&files_);
  CheckpointWatcher watcher(&failing, "/d");
  for (const uint64_t step : {10, 20, 30, 40}) Publish(1, step);
  Damage("/d/ckpt-00000040/shard-00000-of-00001.safetensors");
  failing.Fail(FailingReads::What::kRead, "ckpt-00000030/MANIFEST.json",
               absl::InternalError("read: Stale file handle"), 1);
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  EXPECT_EQ(watcher.Take(Unreadable::kWait), nullptr);
  EXPECT_THAT(watcher.UnusableAfter(10),
              ElementsAre(HasSubstr("ckpt-00000030: read: Stale"), HasSubstr("ckpt-00000040: ")));
  EXPECT_THAT(watcher.UnusableAfter(30), ElementsAre(HasSubstr("ckpt-00000040: ")));
  std::unique_ptr<Checkpoint> checkpoint = watcher.Take(Unreadable::kPassOver);
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->manifest().step, 20);
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  // Now its weights cannot be read.
  const auto fail = [&] {
    failing.Fail(FailingReads::What::kRead, "ckpt-00000030/shard-00000-of-00001.safetensors",
                 absl::InternalError("read: Stale file handle"), 1);
  };
  fail();
  EXPECT_EQ(watcher.Take(Unreadable::kWait), nullptr);
  fail();
  checkpoint = watcher.Take(Unreadable::kPassOver);
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->manifest().step, 10);
  ASSERT_EQ(watcher.Poll(), absl::OkStatus());
  checkpoint = watcher.Take(Unreadable::kWait);
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->manifest().step, 30);
}

TEST_F(CheckpointWatcherTest, SeesTheEndOfTrainingInARepublishedManifest) {
  Publish(1, 10);
  EXPECT_EQ(Take(), 10);
  EXPECT_FALSE(watcher_.final_was_taken());
  Publish(1, 10, /*done=*/true);
  EXPECT_FALSE(watcher_.has_new());
  EXPECT_TRUE(watcher_.final_was_taken());
}

TEST_F(CheckpointWatcherTest, DoesNotEndBeforeTheLastCheckpointIsTaken) {
  Publish(1, 10);
  Publish(1, 20, /*done=*/true);
  EXPECT_TRUE(watcher_.final_is_there());
  EXPECT_FALSE(watcher_.final_was_taken());
  EXPECT_EQ(Take(), 20);
  EXPECT_TRUE(watcher_.final_was_taken());
  EXPECT_THAT(watcher_.untaken(), ElementsAre(10));
}

TEST_F(CheckpointWatcherTest, DoesNotEndIfTrainingContinued) {
  Publish(1, 20, /*done=*/true);
  EXPECT_EQ(Take(), 20);
  Publish(2, 30);
  EXPECT_FALSE(watcher_.final_is_there());
  EXPECT_EQ(Take(), 30);
}

// The server writes pipeline.config at each start and leaves the old last checkpoint as it is.
TEST_F(CheckpointWatcherTest, TheEndOfTrainingFollowsTheConfig) {
  const auto is_final_with = [this](const std::string& config) {
    files_.Corrupt("/d/pipeline.config", config);
    EXPECT_EQ(watcher_.Poll(), absl::OkStatus());
    return watcher_.final_is_there();
  };
  Publish(1, 20, /*done=*/true);
  EXPECT_EQ(Take(), 20);
  EXPECT_TRUE(watcher_.final_was_taken()) << "there is no pipeline.config";
  EXPECT_TRUE(is_final_with("train_config { of a newer version }"));
  EXPECT_TRUE(is_final_with("train_config { num_steps: 20 }"));
  EXPECT_FALSE(is_final_with("train_config { num_steps: 21 }"));
  EXPECT_FALSE(watcher_.final_was_taken());
  EXPECT_FALSE(is_final_with("train_config { of a newer version }")) << "the last limits count";
  EXPECT_FALSE(is_final_with("train_config { num_steps: 0 }"));
  EXPECT_TRUE(is_final_with("train_config { num_steps: 10 }"));
  EXPECT_FALSE(is_final_with("train_input_reader { num_epochs: 2 }")) << "nobody knows the images";
}

TEST_F(CheckpointWatcherTest, TheEndOfTrainingFollowsTheEpochs) {
  files_.Corrupt("/d/pipeline.config",
                 "train_config { batch_size: 10 } train_input_reader { num_epochs: 2 }");
  Publish(1, 10, /*done=*/true, /*num_images=*/50);
  EXPECT_TRUE(watcher_.final_is_there());
  files_.Corrupt("/d/pipeline.config",
                 "train_config { batch_size: 10 } train_input_reader { num_epochs: 3 }");
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.final_is_there());
  Publish(2, 15, /*done=*/true, /*num_images=*/50);
  EXPECT_TRUE(watcher_.final_is_there());
}

TEST_F(CheckpointWatcherTest, AStepPublishedAgainAfterARollbackIsNew) {
  Publish(1, 20);
  EXPECT_EQ(Take(), 20);
  Publish(2, 20);
  EXPECT_EQ(Take(), 20);
}

// `ps_server --from_checkpoint` trains steps again, here while an evaluation keeps the watcher from
// looking. The step that is replaced is not the newest one that the watcher knows.
TEST_F(CheckpointWatcherTest, AStepThatWasReplacedUnseenIsNew) {
  Publish(1, 10);
  Publish(1, 20);
  EXPECT_EQ(Take(), 20);
  EXPECT_EQ(Take(), 10);
  PublishUnseen({.epoch = 2, .step = 10});
  PublishUnseen({.epoch = 2, .step = 30});
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_THAT(watcher_.untaken(), ElementsAre(10, 30));
  EXPECT_EQ(Take(), 30);
  EXPECT_EQ(Take(), 10);
  EXPECT_EQ(Take(), 0);
}

// The step is replaced between the poll and the take, so the watcher takes another checkpoint than
// it has seen. It does not take that one again.
TEST_F(CheckpointWatcherTest, AStepThatIsReplacedBeforeItIsTakenIsTakenOnce) {
  Publish(1, 10);
  Publish(1, 20);
  PublishUnseen({.epoch = 2, .step = 10});
  EXPECT_EQ(Take(), 20);
  EXPECT_EQ(Take(), 10);
  EXPECT_EQ(Take(), 0);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.has_new());
}

// Somebody removes the files of a run and trains anew; the new run reaches the same steps in the
// same epoch.
TEST_F(CheckpointWatcherTest, AStepOfAnotherRunIsNew) {
  Publish(1, 10);
  Publish(1, 20, /*done=*/true);
  EXPECT_EQ(Take(), 20);
  EXPECT_EQ(Take(), 10);
  for (const uint64_t step : {10, 20}) {
    ASSERT_EQ(RemoveRecursively(files_, "/d/" + CheckpointName(step)), absl::OkStatus());
  }
  const std::string other(32, 'e');
  PublishUnseen({.epoch = 1, .step = 10, .run_id = other});
  PublishUnseen({.epoch = 1, .step = 20, .training_done = true, .run_id = other});
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.final_was_taken());
  EXPECT_THAT(watcher_.untaken(), ElementsAre(10, 20));
  EXPECT_EQ(Take(), 20);
  EXPECT_TRUE(watcher_.final_was_taken());
}

TEST_F(CheckpointWatcherTest, OnlyTheFoldersOwnRunCounts) {
  const std::string other(32, 'e');
  PublishUnseen({.epoch = 1, .step = 10});
  PublishUnseen({.epoch = 2, .step = 30, .training_done = true, .run_id = other});
  files_.Corrupt("/d/run_id", TinyCheckpoint().run_id);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_THAT(watcher_.untaken(), ElementsAre(10));
  EXPECT_FALSE(watcher_.final_is_there());
  // A checkpoint of the other run takes the place of this one before it is taken.
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000010"), absl::OkStatus());
  files_.Corrupt("/d/run_id", other);
  PublishUnseen({.epoch = 1, .step = 10, .run_id = other});
  EXPECT_EQ(Take(), 0);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_TRUE(watcher_.final_is_there());
  EXPECT_EQ(Take(), 30);
  EXPECT_EQ(Take(), 10);
  files_.Corrupt("/d/run_id", "1");
  EXPECT_TRUE(absl::IsDataLoss(watcher_.Poll()));
}

TEST_F(CheckpointWatcherTest, RefusesADamagedCheckpointOnceAndTakesTheNext) {
  Publish(1, 10);
  Publish(1, 20);
  Publish(1, 30);
  Damage("/d/ckpt-00000030/shard-00000-of-00001.safetensors");
  Damage("/d/ckpt-00000020/MANIFEST.json");
  EXPECT_EQ(Take(), 10);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.has_new());
  EXPECT_THAT(watcher_.refusals(),
              ElementsAre(HasSubstr("ckpt-00000020"), HasSubstr("ckpt-00000030: ")));
  // A good checkpoint replaces the damaged one.
  Publish(2, 20);
  EXPECT_EQ(Take(), 20);
}

// An administrator copies a good file over a damaged one.
TEST_F(CheckpointWatcherTest, TakesARepairedCheckpoint) {
  Publish(1, 10);
  const std::string path = "/d/" + CheckpointName(10) + "/shard-00000-of-00001.safetensors";
  const std::string good = *ReadWholeFile(files_, path);
  Damage(path);
  EXPECT_EQ(Take(), 0);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_FALSE(watcher_.has_new()) << "the damaged file has not changed";
  files_.Corrupt(path, good);
  ASSERT_EQ(watcher_.Poll(), absl::OkStatus());
  EXPECT_TRUE(watcher_.has_new());
  EXPECT_EQ(Take(), 10);
}

TEST_F(CheckpointWatcherTest, DeletionBetweenPollAndTakeIsHarmless) {
  Publish(1, 10);
  Publish(1, 20);
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000020"), absl::OkStatus());
  EXPECT_EQ(Take(), 10);
  EXPECT_TRUE(watcher_.refusals().empty());
}

TEST_F(CheckpointWatcherTest, AMissingDirectoryIsAnError) {
  CheckpointWatcher watcher(&files_, "/nowhere");
  EXPECT_TRUE(absl::IsNotFound(watcher.Poll()));
}

}  // namespace
}  // namespace pushpull
