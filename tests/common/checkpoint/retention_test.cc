#include "common/checkpoint/retention.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "tests/common/checkpoint/checkpoint_testing.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Step n was saved n minutes after the start.
std::vector<CheckpointAge> Ages(const std::vector<uint64_t>& steps) {
  std::vector<CheckpointAge> ages;
  for (const uint64_t step : steps) ages.push_back({step, true, absl::Minutes(step)});
  return ages;
}

TEST(Retention, KeepsTheNewest) {
  RetentionPolicy policy;
  policy.max_to_keep = 2;
  EXPECT_THAT(SelectForDeletion(Ages({1, 2, 3, 4}), policy, {}), ElementsAre(1, 2));
  EXPECT_THAT(SelectForDeletion(Ages({3, 4}), policy, {}), IsEmpty());
  EXPECT_THAT(SelectForDeletion({}, policy, {}), IsEmpty());
  policy.max_to_keep = 0;
  EXPECT_THAT(SelectForDeletion(Ages({1, 2, 3, 4}), policy, {}), IsEmpty());
}

TEST(Retention, KeepsTheBest) {
  RetentionPolicy policy;
  policy.max_to_keep = 1;
  EXPECT_THAT(SelectForDeletion(Ages({1, 2, 3, 4}), policy, {2}), ElementsAre(1, 3));
  EXPECT_THAT(SelectForDeletion(Ages({1, 2, 3, 4}), policy, {2, 77}), ElementsAre(1, 3));
}

TEST(Retention, KeepsOnePerPeriodForever) {
  RetentionPolicy policy;
  policy.max_to_keep = 1;
  policy.keep_every = absl::Hours(1);
  // Retention keeps no checkpoint of the first hour and then the first one of each hour.
  EXPECT_THAT(SelectForDeletion(Ages({5, 50, 65, 100, 130, 175, 200}), policy, {}),
              ElementsAre(5, 50, 100, 175));
  EXPECT_THAT(SelectForDeletion(Ages({65, 130, 200, 230}), policy, {}), IsEmpty());
  EXPECT_THAT(SelectForDeletion(Ages({65, 130, 200, 230, 241}), policy, {}), ElementsAre(230));
}

TEST(Retention, DoesNotCountDamagedOnes) {
  RetentionPolicy policy;
  policy.max_to_keep = 2;
  std::vector<CheckpointAge> ages = Ages({2, 9, 3, 4});
  ages[0].readable = false;
  ages[1].readable = false;
  EXPECT_THAT(SelectForDeletion(ages, policy, {}), ElementsAre(2));
  ages[2].readable = false;
  EXPECT_THAT(SelectForDeletion(ages, policy, {}), IsEmpty());
}

class ApplyRetentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
    for (const uint64_t step : {10, 20, 30, 40}) {
      ASSERT_EQ(SaveTestCheckpoint(files_, "/d", layout_, 1, step, 1), absl::OkStatus());
    }
    policy_.max_to_keep = 2;
  }

  void SaveOfOtherRun(uint64_t epoch, uint64_t step) {
    ASSERT_EQ(SaveTestCheckpoint(files_, "/d", layout_, epoch, step, 1), absl::OkStatus());
    CheckpointManifest manifest = *ReadManifest(files_, "/d", step);
    manifest.run_id = std::string(32, 'e');
    const std::string path = absl::StrCat("/d/", CheckpointName(step), "/", kManifestFile);
    files_.Corrupt(path, SerializeManifest(manifest));
  }

  const VariableLayout layout_ = TestLayout(3);
  MemoryFileSystem files_;
  RetentionPolicy policy_;
};

TEST_F(ApplyRetentionTest, DeletesOldOnesButKeepsTheBest) {
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {10, "accuracy", 0.75}), absl::OkStatus());
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->metric, "accuracy");
  EXPECT_EQ((*best)->value, 0.75);
  ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 30, 40));
  EXPECT_THAT(*files_.List("/d"),
              ElementsAre("checkpoint", "ckpt-00000010", "ckpt-00000030", "ckpt-00000040", "eval"));
}

TEST_F(ApplyRetentionTest, LeavesAndDoesNotCountCheckpointsOfOtherRuns) {
  for (const uint64_t epoch : {0, 9}) {  // older and newer than those of this run
    SaveOfOtherRun(epoch, 15 + epoch);
    SaveOfOtherRun(epoch, 50 + epoch);
  }
  ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(15, 24, 30, 40, 50, 59));
}

TEST_F(ApplyRetentionTest, VerifiesTheNewestOfItsOwnRun) {
  SaveOfOtherRun(9, 50);
  files_.Corrupt("/d/ckpt-00000050/shard-00000-of-00001.safetensors", "damaged");
  ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(30, 40, 50));
  EXPECT_EQ(ApplyRetention(files_, "/d", std::string(32, 'f'), policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(30, 40, 50)) << "it has none";
}

TEST_F(ApplyRetentionTest, TheBestCheckpointMayHaveARunAnEpochAndADigest) {
  const std::string path = "/d/eval/best_checkpoint";
  for (const bool known : {false, true}) {
    BestCheckpoint best = {10, "accuracy", 0.75};
    if (known) best.run_id = "0123";
    if (known) best.epoch = 0;
    if (known) best.config_digest = "4567";
    ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", best), absl::OkStatus());
    const auto read = ReadBestCheckpoint(files_, "/d/eval");
    ASSERT_TRUE(read.ok() && read->has_value()) << read.status();
    EXPECT_EQ((*read)->run_id, best.run_id);
    EXPECT_EQ((*read)->epoch, best.epoch);
    EXPECT_EQ((*read)->config_digest, best.config_digest);
  }
  for (const char* field :
       {R"("run_id": 1)", R"("epoch": "1")", R"("epoch": -1)", R"("config_digest": 1)"}) {
    files_.Corrupt(path, absl::StrCat(R"({"step": 10, "metric": "a", "value": 1, )", field, "}"));
    const absl::Status status = ReadBestCheckpoint(files_, "/d/eval").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  }
}

TEST_F(ApplyRetentionTest, KeepsTheCheckpointThatIsEvaluated) {
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {10, "accuracy", 0.75}), absl::OkStatus());
  {
    const EvaluationRecord record(&files_, "/d/eval", 20);
    ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
    EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 20, 30, 40));
  }
  EXPECT_THAT(*files_.List("/d/eval"), ElementsAre("best_checkpoint"));
  ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 30, 40));
}

TEST_F(ApplyRetentionTest, AnEvaluatorLeavesTheRecordOfALaterOne) {
  std::optional<EvaluationRecord> first, second;
  first.emplace(&files_, "/d/eval", 10);
  second.emplace(&files_, "/d/eval", 20);
  first.reset();
  ASSERT_EQ(ApplyRetention(files_, "/d", kTestRunId, policy_), absl::OkStatus());
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(20, 30, 40));
  second.reset();
  EXPECT_THAT(*files_.List("/d/eval"), ElementsAre());
}

// The evaluator begins while retention verifies the newest checkpoint.
TEST_F(ApplyRetentionTest, PutsACheckpointBackWhoseEvaluationHasBegun) {
  FailingReads hooked(&files_);
  std::optional<EvaluationRecord> record;
  hooked.AtFailure([&] { record.emplace(&files_, "/d/eval", 10); });
  hooked.Fail(FailingReads::What::kRead, "ckpt-00000040/shard-00000-of-00001.safetensors",
              absl::OkStatus(), 1);
  ASSERT_EQ(ApplyRetention(hooked, "/d", kTestRunId, policy_), absl::OkStatus());
  ASSERT_EQ(hooked.failed(), 1);
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 30, 40));
  EXPECT_TRUE(Checkpoint::Open(files_, "/d", 10).ok());
}

TEST_F(ApplyRetentionTest, DeletesNothingWhenTheNewestDoesNotVerify) {
  const std::string path = "/d/ckpt-00000040/shard-00000-of-00001.safetensors";
  std::string bytes = *ReadWholeFile(files_, path);
  bytes.back() ^= 1;
  files_.Corrupt(path, bytes);
  EXPECT_TRUE(absl::IsDataLoss(ApplyRetention(files_, "/d", kTestRunId, policy_)));
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 20, 30, 40));
}

TEST_F(ApplyRetentionTest, DeletesNothingMoreWhenItIsStopped) {
  FailingReads hooked(&files_);
  bool stop = false;
  hooked.AtFailure([&] { stop = true; });
  hooked.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1);
  const auto apply = [&] {
    return ApplyRetention(hooked, "/d", kTestRunId, policy_, [&] { return stop; });
  };
  const absl::Status stopped = apply();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_TRUE(absl::StrContains(stopped.message(), "/d/ckpt-00000040/")) << "it reads to the end";
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 20, 30, 40));

  // The record of an evaluation is read once before the reading back and once at each deletion.
  const EvaluationRecord record(&files_, "/d/eval", 30);
  stop = false;
  int reads = 0;
  hooked.AtFailure([&] { stop = ++reads == 2; });
  hooked.Fail(FailingReads::What::kOpen, "/evaluating", absl::OkStatus(), 1000);
  EXPECT_TRUE(absl::IsCancelled(apply()));
  EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(20, 30, 40));
}

TEST_F(ApplyRetentionTest, DeletesNothingWhenTheBestIsUnknown) {
  for (const std::string file : {"/d/eval/best_checkpoint", "/d/eval/evaluating"}) {
    for (const std::string text : {R"({"step": "ten"})", R"([10])", ""}) {
      files_.Corrupt(file, text);
      EXPECT_TRUE(absl::IsDataLoss(ApplyRetention(files_, "/d", kTestRunId, policy_)))
          << file << text;
      EXPECT_THAT(*ListCheckpoints(files_, "/d"), ElementsAre(10, 20, 30, 40));
    }
    ASSERT_EQ(files_.RemoveFile(file), absl::OkStatus());
  }
}

}  // namespace
}  // namespace pushpull
