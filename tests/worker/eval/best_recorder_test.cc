#include "worker/eval/best_recorder.h"

#include <optional>
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

using ::testing::HasSubstr;

class BestRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
    for (const uint64_t step : {10, 20, 30}) Publish({.epoch = 1, .step = step});
  }

  void Publish(const TinyCheckpoint& checkpoint) {
    ASSERT_EQ(PublishTiny(files_, "/d", layout_, checkpoint), absl::OkStatus());
  }
  // Adds a measurement of the checkpoint of epoch 1 and settles it.
  absl::Status Measure(uint64_t step, double value, const std::string& metric = "accuracy") {
    recorder_.Add({step, metric, value, run_, 1});
    return recorder_.Settle();
  }
  // Returns the step and the value in the file, such as "20: 0.5".
  std::string Recorded() {
    const auto best = ReadBestCheckpoint(files_, "/d/eval");
    if (!best.ok()) return std::string(best.status().message());
    if (!best->has_value()) return "nothing";
    return absl::StrCat((*best)->step, ": ", (*best)->value);
  }

  const std::string run_ = TinyCheckpoint().run_id;
  const VariableLayout layout_ = *VariableLayout::Create({MakeVariable("w", {5})});
  MemoryFileSystem files_;
  FailingReads failing_{&files_};
  BestRecorder recorder_{&failing_, "/d", "/d/eval", "now"};
};

TEST_F(BestRecorderTest, RecordsTheHighestValueOfAMetric) {
  EXPECT_EQ(recorder_.best(), std::nullopt);
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.5");
  ASSERT_EQ(Measure(20, 0.25), absl::OkStatus());
  ASSERT_EQ(Measure(30, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.5");
  ASSERT_EQ(Measure(30, 0.75), absl::OkStatus());
  EXPECT_EQ(Recorded(), "30: 0.75");
  ASSERT_EQ(Measure(20, 0.125, "mAP"), absl::OkStatus());
  EXPECT_EQ(Recorded(), "20: 0.125");
  ASSERT_TRUE(recorder_.best().has_value());
  EXPECT_EQ(recorder_.best()->metric, "mAP");
  EXPECT_EQ(recorder_.best()->run_id, run_);
  EXPECT_EQ(recorder_.best()->epoch, 1);
}

TEST_F(BestRecorderTest, ANewMeasurementOfTheBestCheckpointReplacesItsValue) {
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  ASSERT_EQ(Measure(10, 0.25), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.25");
}

// The folder also holds a checkpoint of another run, which an older evaluator has recorded.
TEST_F(BestRecorderTest, OnlyTheFoldersOwnRunCounts) {
  const std::string other(32, 'e');
  Publish({.epoch = 1, .step = 40, .run_id = other});
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {40, "accuracy", 0.875, other, 1}),
            absl::OkStatus());
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "40: 0.875") << "there is no run_id file";
  files_.Corrupt("/d/run_id", run_);
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.5");
}

TEST_F(BestRecorderTest, TheBestOfAnotherConfigStaysUntilItIsMeasuredAnew) {
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {10, "accuracy", 0.875, run_, 1, "before"}),
            absl::OkStatus());
  EXPECT_EQ(*recorder_.StepToMeasureAnew(), 10);
  ASSERT_EQ(Measure(30, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.875");
  EXPECT_EQ(recorder_.best(), std::nullopt);
  EXPECT_TRUE(recorder_.settled()) << "there is nothing to do before step 10 is measured";
  ASSERT_EQ(Measure(10, 0.25), absl::OkStatus());
  EXPECT_EQ(Recorded(), "30: 0.5");
  EXPECT_EQ(*recorder_.StepToMeasureAnew(), std::nullopt);
  ASSERT_EQ(Measure(20, 0.375), absl::OkStatus());
  EXPECT_EQ(Recorded(), "30: 0.5");
}

TEST_F(BestRecorderTest, TheBestOfAnotherConfigIsReplacedIfItCannotBeMeasured) {
  const auto replaced_after = [&](const auto& change) {
    ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {20, "accuracy", 0.875, run_, 1, "before"}),
              absl::OkStatus());
    ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
    EXPECT_EQ(Recorded(), "20: 0.875");
    change();
    ASSERT_EQ(Measure(30, 0.25), absl::OkStatus());
    EXPECT_EQ(Recorded(), "10: 0.5");
  };
  replaced_after([&] { recorder_.GiveUp(20); });
  recorder_.GiveUp(0);
  replaced_after(
      [&] { ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000020"), absl::OkStatus()); });
}

// Older versions write no digest. The value counts, and belongs to the present config from then on.
TEST_F(BestRecorderTest, ARecordWithoutADigestGetsThePresentOne) {
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {20, "accuracy", 0.875, run_, 1}),
            absl::OkStatus());
  EXPECT_EQ(*recorder_.StepToMeasureAnew(), std::nullopt);
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "20: 0.875");
  BestRecorder after_a_change(&files_, "/d", "/d/eval", "later");
  EXPECT_EQ(*after_a_change.StepToMeasureAnew(), 20);
}

TEST_F(BestRecorderTest, ReadsWhatAnotherEvaluatorHasRecorded) {
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {20, "accuracy", 0.875, run_, 1}),
            absl::OkStatus());
  ASSERT_EQ(Measure(30, 0.75), absl::OkStatus());
  EXPECT_EQ(Recorded(), "20: 0.875");
  EXPECT_EQ(recorder_.best()->step, 20);
}

TEST_F(BestRecorderTest, ACheckpointThatWasReplacedOrDamagedDoesNotCount) {
  const auto replaced_by = [&](const auto& change) {
    ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {20, "accuracy", 0.875, run_, 1}),
              absl::OkStatus());
    change();
    ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
    EXPECT_EQ(Recorded(), "10: 0.5");
    ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000020"), absl::OkStatus());
    Publish({.epoch = 1, .step = 20});
  };
  replaced_by([&] { Publish({.epoch = 2, .step = 20}); });
  replaced_by([&] { Publish({.epoch = 1, .step = 20, .run_id = std::string(32, 'e')}); });
  replaced_by([&] { files_.Corrupt("/d/ckpt-00000020/MANIFEST.json", "{}"); });
  replaced_by([&] { ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000020"), absl::OkStatus()); });
  replaced_by([&] { files_.Corrupt("/d/eval/best_checkpoint", "{}"); });
}

TEST_F(BestRecorderTest, AFileWithoutRunAndEpochCounts) {
  files_.Corrupt("/d/eval/best_checkpoint", R"({"metric":"accuracy","step":20,"value":0.875})");
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  EXPECT_EQ(Recorded(), "20: 0.875");
  ASSERT_EQ(Measure(20, 0.25), absl::OkStatus());
  EXPECT_EQ(Recorded(), "20: 0.25");
}

TEST_F(BestRecorderTest, DoesNotRecordACheckpointThatWasReplacedDuringItsEvaluation) {
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  Publish({.epoch = 2, .step = 20});
  ASSERT_EQ(Measure(20, 0.75), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.5");
  ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000030"), absl::OkStatus());
  ASSERT_EQ(Measure(30, 0.75), absl::OkStatus());
  EXPECT_EQ(Recorded(), "10: 0.5");
}

// An error of the disk neither makes the recorded checkpoint lose its protection nor loses what was
// measured.
TEST_F(BestRecorderTest, TriesAgainAfterAReadFailure) {
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  const absl::Status stale = absl::InternalError("read: Stale file handle");
  for (const char* file : {"best_checkpoint", "ckpt-00000010/MANIFEST.json"}) {
    failing_.Fail(FailingReads::What::kRead, file, stale, 1);
    EXPECT_EQ(Measure(20, 0.25), stale) << file;
    EXPECT_FALSE(recorder_.settled());
    EXPECT_EQ(Recorded(), "10: 0.5");
    ASSERT_EQ(recorder_.Settle(), absl::OkStatus());
    EXPECT_TRUE(recorder_.settled());
    EXPECT_EQ(Recorded(), "10: 0.5") << file;
  }
  failing_.Fail(FailingReads::What::kRead, "ckpt-00000030/MANIFEST.json", stale, 1);
  EXPECT_EQ(Measure(30, 0.75), stale);
  ASSERT_EQ(recorder_.Settle(), absl::OkStatus());
  EXPECT_EQ(Recorded(), "30: 0.75");
}

TEST_F(BestRecorderTest, TriesAgainAfterAFailedWrite) {
  ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  for (int call = 0; call < 4; ++call) {  // open, write, sync, rename
    SCOPED_TRACE(call);
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, call, /*lasting=*/true});
    EXPECT_FALSE(Measure(20, 0.75).ok());
    EXPECT_EQ(recorder_.best()->step, 10);
    EXPECT_EQ(Recorded(), "10: 0.5");
    files_.SetFault(std::nullopt);
    ASSERT_EQ(recorder_.Settle(), absl::OkStatus());
    EXPECT_EQ(Recorded(), "20: 0.75");
    EXPECT_EQ(recorder_.best()->step, 20);
    ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {10, "accuracy", 0.5, run_, 1}),
              absl::OkStatus());
    ASSERT_EQ(Measure(10, 0.5), absl::OkStatus());
  }
}

TEST_F(BestRecorderTest, ForgetsWhatIsNotSettled) {
  failing_.Fail(FailingReads::What::kRead, "MANIFEST.json", absl::InternalError("read: EIO"), 1);
  EXPECT_THAT(std::string(Measure(10, 0.5).message()), HasSubstr("EIO"));
  recorder_.Forget();
  EXPECT_TRUE(recorder_.settled());
  EXPECT_EQ(recorder_.best(), std::nullopt);
  EXPECT_EQ(Recorded(), "nothing");
}

}  // namespace
}  // namespace pushpull
