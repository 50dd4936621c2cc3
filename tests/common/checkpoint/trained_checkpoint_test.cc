#include "common/checkpoint/trained_checkpoint.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class TrainedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(files_.MakeDirectory("/d"), absl::OkStatus());
    Publish(own_, 1, 10);
    Publish(own_, 1, 20);
    Publish(other_, 3, 30);
  }
  void Publish(const std::string& run_id, uint64_t epoch, uint64_t step,
               const std::string& config = "") {
    CheckpointManifest manifest;
    manifest.pipeline_config = config;
    manifest.run_id = run_id;
    manifest.epoch = epoch;
    manifest.step = step;
    ASSERT_EQ(PublishOneShard(files_, "/d", layout_, manifest, std::vector<float>(5), {}),
              absl::OkStatus());
  }
  // Returns the step of the checkpoint that is opened.
  uint64_t Open(int64_t step) {
    const auto checkpoint = OpenTrainedCheckpoint(files_, "/d", step, &layout_, config_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? (*checkpoint)->manifest().step : 0;
  }

  const std::string own_ = std::string(32, 'a');
  const std::string other_ = std::string(32, 'b');
  const VariableLayout layout_ = *VariableLayout::Create({MakeVariable("w", {5})});
  config::TrainEvalPipelineConfig config_;
  MemoryFileSystem files_;
};

TEST_F(TrainedCheckpointTest, TheNewestIsThatOfTheFoldersOwnRun) {
  EXPECT_EQ(Open(-1), 30) << "there is no run_id file";
  files_.Corrupt("/d/run_id", own_ + "\n");
  EXPECT_EQ(Open(-1), 20);
  EXPECT_EQ(Open(10), 10);
  EXPECT_EQ(Open(30), 30) << "the step was asked for";
}

TEST_F(TrainedCheckpointTest, NamesTheStepOfAnotherRunIfThereIsNoOther) {
  files_.Corrupt("/d/run_id", std::string(32, 'c') + "\n");
  const absl::Status status = OpenTrainedCheckpoint(files_, "/d", -1, &layout_, config_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--step=30 takes the checkpoint of the other run"));
  EXPECT_EQ(Open(30), 30);
}

TEST_F(TrainedCheckpointTest, AMalformedRunIdIsAnErrorUnlessAStepIsNamed) {
  files_.Corrupt("/d/run_id", "1");
  const absl::Status status = OpenTrainedCheckpoint(files_, "/d", -1, nullptr, config_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/d/run_id: expected 32 hex digits"));
  EXPECT_EQ(Open(20), 20);
}

// The server was started again with another config, or somebody has edited the file.
TEST_F(TrainedCheckpointTest, WarnsIfItWasTrainedWithAnotherModel) {
  config_.mutable_model()->mutable_classifier()->set_num_classes(10);
  const std::string trained = "model { classifier { num_classes: 10 } } train_config { seed: 1 }";
  Publish(own_, 4, 40, trained);
  {
    const WarningSink sink;
    for (const int64_t step : {40, 30}) EXPECT_EQ(Open(step), step);
    EXPECT_EQ(sink.Count("another model"), 0);
  }
  const WarningSink sink;
  config_.mutable_model()->mutable_classifier()->set_num_classes(11);
  for (const int64_t step : {40, 30}) EXPECT_EQ(Open(step), step);
  EXPECT_EQ(sink.Count("another model"), 1);
  EXPECT_EQ(sink.Count("modified: classifier.num_classes: 10 -> 11"), 1);
}

}  // namespace
}  // namespace pushpull
