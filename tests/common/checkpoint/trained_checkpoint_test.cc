#include "common/checkpoint/trained_checkpoint.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/optimizer_test_util.h"

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
  void Publish(const std::string& run_id, uint64_t epoch, uint64_t step) {
    CheckpointManifest manifest;
    manifest.run_id = run_id;
    manifest.epoch = epoch;
    manifest.step = step;
    ASSERT_EQ(PublishOneShard(files_, "/d", layout_, manifest, std::vector<float>(5), {}),
              absl::OkStatus());
  }
  // Returns the step of the checkpoint that is opened.
  uint64_t Open(int64_t step) {
    const auto checkpoint = OpenTrainedCheckpoint(files_, "/d", step, &layout_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? (*checkpoint)->manifest().step : 0;
  }

  const std::string own_ = std::string(32, 'a');
  const std::string other_ = std::string(32, 'b');
  const VariableLayout layout_ = *VariableLayout::Create({MakeVariable("w", {5})});
  MemoryFileSystem files_;
};

TEST_F(TrainedCheckpointTest, TheNewestIsThatOfTheFoldersOwnRun) {
  EXPECT_EQ(Open(-1), 30) << "there is no run_id file";
  files_.Corrupt("/d/run_id", own_ + "\n");
  EXPECT_EQ(Open(-1), 20);
  EXPECT_EQ(Open(10), 10);
  EXPECT_EQ(Open(30), 30) << "the step was asked for";
}

TEST_F(TrainedCheckpointTest, AMalformedRunIdIsAnErrorUnlessAStepIsNamed) {
  files_.Corrupt("/d/run_id", "1");
  const absl::Status status = OpenTrainedCheckpoint(files_, "/d", -1, nullptr).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/d/run_id: expected 32 hex digits"));
  EXPECT_EQ(Open(20), 20);
}

}  // namespace
}  // namespace pushpull
