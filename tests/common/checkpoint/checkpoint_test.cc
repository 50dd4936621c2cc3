
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/sharding.h"
#include "tests/common/checkpoint/checkpoint_testing.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/test_folder.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Expects everything that the checkpoint holds, read in the ranges of a sharding into `tasks`
// shards.
void ExpectHolds(const Checkpoint& checkpoint, const VariableLayout& layout, uint64_t step,
                 int tasks) {
  const TestState expected = MakeTestState(layout, step);
  const Sharding sharding(layout.total_elements(), tasks);
  TestState got;
  for (std::vector<float>* vector : {&got.weights, &got.adam, &got.adam_1, &got.ema}) {
    vector->assign(layout.total_elements(), -7.0f);
  }
  for (int shard = 0; shard < tasks; ++shard) {
    const ElementRange range = sharding.shard(shard);
    const auto at = [&](std::vector<float>& vector) { return vector.data() + range.begin; };
    ASSERT_EQ(checkpoint.ReadWeights(layout, range, at(got.weights)), absl::OkStatus());
    ASSERT_EQ(checkpoint.ReadSlot(layout, "Adam", range, at(got.adam)), absl::OkStatus());
    ASSERT_EQ(checkpoint.ReadSlot(layout, "Adam_1", range, at(got.adam_1)), absl::OkStatus());
    ASSERT_EQ(checkpoint.ReadEma(layout, range, at(got.ema)), absl::OkStatus());
  }
  EXPECT_EQ(got.weights, expected.weights);
  EXPECT_EQ(got.adam, expected.adam);
  EXPECT_EQ(got.adam_1, expected.adam_1);
  EXPECT_EQ(got.ema, expected.ema);
}

TEST(Checkpoint, RoundTripsWithAnyNumberOfShards) {
  const VariableLayout layout = TestLayout(300);  // about 3,100 elements: four pages
  for (const int written : {1, 2, 3, 7}) {
    MemoryFileSystem files;
    ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
    ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 4, 12000, written), absl::OkStatus());
    const auto checkpoint = Checkpoint::Open(files, "/d", 12000);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->path(), "/d/ckpt-00012000");
    EXPECT_EQ((*checkpoint)->manifest().files.size(), written);
    for (const int read : {1, 2, 5}) ExpectHolds(**checkpoint, layout, 12000, read);
    EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{"checkpoint", "ckpt-00012000"}));
    EXPECT_EQ(*ReadWholeFile(files, "/d/checkpoint"), "ckpt-00012000\n");
  }
}

TEST(Checkpoint, ManifestRoundTrips) {
  const VariableLayout layout = TestLayout(3);
  CheckpointManifest manifest = MakeTestManifest(layout, 7, 99999999999);
  manifest.sync = false;
  manifest.training_done = true;
  manifest.async_state = "{\"hw\":[1,2]}";
  manifest.seed = ~uint64_t{0};
  manifest.files = {{"shard-00000-of-00001.safetensors", 123, std::string(64, 'a'), {{"x", 5}}}};
  const std::string text = SerializeManifest(manifest);
  const auto parsed = ParseManifest(text, "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeManifest(*parsed), text);
  EXPECT_EQ(parsed->seed, manifest.seed);
  EXPECT_EQ(parsed->async_state, manifest.async_state);
  EXPECT_EQ(parsed->pipeline_config, manifest.pipeline_config);
  EXPECT_TRUE(parsed->training_done);
  EXPECT_FALSE(parsed->sync);
  EXPECT_EQ(CheckLayout(*parsed, layout), absl::OkStatus());
}

TEST(Checkpoint, TheLengthOfTrainingIsOptional) {
  CheckpointManifest manifest = MakeTestManifest(TestLayout(3), 7, 40);
  manifest.files = {{"shard-00000-of-00001.safetensors", 123, std::string(64, 'a'), {{"x", 5}}}};
  const std::string without = SerializeManifest(manifest);
  EXPECT_THAT(without, testing::Not(HasSubstr("last_step")));
  EXPECT_THAT(without, testing::Not(HasSubstr("num_images")));
  const auto old = ParseManifest(without, "m");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->last_step, 0);
  EXPECT_EQ(old->num_images, 0);

  manifest.last_step = 90;
  manifest.num_images = 1000;
  const auto parsed = ParseManifest(SerializeManifest(manifest), "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->last_step, 90);
  EXPECT_EQ(parsed->num_images, 1000);
}

TEST(Checkpoint, TheDevicesOfTheClonesAreOptional) {
  CheckpointManifest manifest = MakeTestManifest(TestLayout(3), 7, 40);
  manifest.files = {{"shard-00000-of-00001.safetensors", 123, std::string(64, 'a'), {{"x", 5}}}};
  const std::string without = SerializeManifest(manifest);
  EXPECT_THAT(without, testing::Not(HasSubstr("devices")));
  const auto old = ParseManifest(without, "m");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(old->devices, testing::IsEmpty());

  manifest.devices = {"the CPU (avx2) in fp32", "the CPU (sse4) in fp32"};
  const auto parsed = ParseManifest(SerializeManifest(manifest), "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->devices, manifest.devices);
}

TEST(Checkpoint, OnlyTheManifestOfAnExternalModelHasAttributes) {
  std::vector<VariableSpec> variables = TestLayout(3).variables();
  variables[0].l2_weight = 0.1f;
  variables[0].learning_rate_multiplier = 1.0f / 3.0f;
  variables[0].frozen = true;
  variables[0].moving_average_decay = 0.997f;
  const VariableLayout layout = *VariableLayout::Create(variables);
  CheckpointManifest manifest = MakeTestManifest(layout, 7, 40);
  manifest.files = {{"shard-00000-of-00001.safetensors", 123, std::string(64, 'a'), {{"x", 5}}}};
  const std::string plain = SerializeManifest(manifest);
  for (const char* const key : {"declared", "l2_weight", "frozen"}) {
    EXPECT_THAT(plain, testing::Not(HasSubstr(key)));
  }
  DescribeDeclaredLayout(layout, &manifest);
  const std::string text = SerializeManifest(manifest);
  const auto parsed = ParseManifest(text, "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeManifest(*parsed), text);
  EXPECT_TRUE(parsed->declared);
  EXPECT_EQ(CheckLayout(*parsed, layout), absl::OkStatus());
  EXPECT_EQ(parsed->variables[0].l2_weight, 0.1f);
  EXPECT_EQ(parsed->variables[0].learning_rate_multiplier, 1.0f / 3.0f);
  EXPECT_TRUE(parsed->variables[0].frozen);
  EXPECT_EQ(parsed->variables[0].moving_average_decay, 0.997f);
}

TEST(Checkpoint, OneShardIsAPlainSafetensorsFile) {
  const VariableLayout layout = TestLayout(300);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 1, 5, 1), absl::OkStatus());
  const std::string path = "/d/ckpt-00000005/shard-00000-of-00001.safetensors";
  const auto reader = SafetensorsReader::Open(*files.OpenForRead(path), path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->header().metadata.empty());
  const SafetensorsTensor* tensor = (*reader)->header().Find("Net/Conv/weights/Adam_1");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 3, 1, 4}));
  EXPECT_NE((*reader)->header().Find("Net/Logits/biases/ExponentialMovingAverage"), nullptr);
  EXPECT_EQ((*reader)->header().Find("Net/Conv/BatchNorm/moving_mean/Adam"), nullptr);
  EXPECT_EQ((*reader)->header().data_offset % 64, 0);
}

TEST(Checkpoint, PublishingAStepAgainReplacesIt) {
  const VariableLayout layout = TestLayout(3);
  for (const bool exchange : {true, false}) {
    MemoryFileSystem files;
    if (!exchange) files.RefuseExchange();
    ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
    ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 1, 5, 1), absl::OkStatus());
    ASSERT_EQ(SaveTestCheckpoint(files, "/d", layout, 2, 5, 1), absl::OkStatus());
    EXPECT_EQ((*Checkpoint::Open(files, "/d", 5))->manifest().epoch, 2);
    EXPECT_EQ(*files.List("/d"), (std::vector<std::string>{"checkpoint", "ckpt-00000005"}));
  }
}

TEST(Checkpoint, PublishFailsIfAListedFileIsMissing) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  CheckpointManifest manifest = MakeTestManifest(layout, 1, 5);
  manifest.files = {{"shard-00000-of-00001.safetensors", 123, std::string(64, 'a'), {}}};
  const absl::Status status = PublishCheckpoint(files, "/d", manifest);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard-00000-of-00001"));
  EXPECT_TRUE(files.List("/d")->empty());
}

TEST(Checkpoint, NamesAMissingSlotAndAMissingEma) {
  const VariableLayout layout = TestLayout(3);
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  const TestState state = MakeTestState(layout, 1);
  CheckpointManifest manifest = MakeTestManifest(layout, 1, 1);
  manifest.slot_names = {"Momentum"};
  manifest.has_ema = false;
  ShardSnapshot snapshot;
  snapshot.range = {0, layout.total_elements()};
  snapshot.weights = state.weights.data();
  snapshot.slots = {{"Momentum", state.adam.data()}};
  manifest.files.push_back(*WriteShardFile(files, "/d", 1, 1, layout, snapshot));
  ASSERT_EQ(PublishCheckpoint(files, "/d", manifest), absl::OkStatus());
  const auto checkpoint = Checkpoint::Open(files, "/d", 1);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<float> out(layout.total_elements());
  const absl::Status ema = (*checkpoint)->ReadEma(layout, snapshot.range, out.data());
  EXPECT_TRUE(absl::IsNotFound(ema));
  EXPECT_THAT(std::string(ema.message()), HasSubstr("ExponentialMovingAverage"));
  const absl::Status slot = (*checkpoint)->ReadSlot(layout, "RMSProp", snapshot.range, out.data());
  EXPECT_TRUE(absl::IsNotFound(slot));
  EXPECT_THAT(std::string(slot.message()),
              HasSubstr("no optimizer slot RMSProp; it has: Momentum"));
}

TEST(Checkpoint, StaysReadableAfterDeletionWhileOpen) {
  const VariableLayout layout = TestLayout(300);
  const TestFolder test_folder;
  const std::string& folder = test_folder.path();
  PosixFileSystem files;
  ASSERT_EQ(SaveTestCheckpoint(files, folder, layout, 1, 5, 2), absl::OkStatus());
  const auto checkpoint = Checkpoint::Open(files, folder, 5);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ(RemoveRecursively(files, folder), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Open(files, folder, 5).status()));
  ExpectHolds(**checkpoint, layout, 5, 1);
}

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(files_.MakeDirectory("/d"), absl::OkStatus());
    Save(1, 100);
    Save(2, 200);
  }
  void Save(uint64_t epoch, uint64_t step) {
    ASSERT_EQ(SaveTestCheckpoint(files_, "/d", layout_, epoch, step, 1), absl::OkStatus());
  }
  void Damage(uint64_t step, const std::string& file) {
    const std::string path = "/d/" + CheckpointName(step) + "/" + file;
    std::string bytes = *ReadWholeFile(files_, path);
    bytes[bytes.size() / 2] ^= 1;
    files_.Corrupt(path, bytes);
  }

  VariableLayout layout_ = TestLayout(3);
  MemoryFileSystem files_;
};

TEST_F(RecoveryTest, FindsTheNewestThatVerifies) {
  EXPECT_EQ((*OpenNewestCheckpoint(files_, "/d", {}))->manifest().step, 200);
  Damage(200, "shard-00000-of-00001.safetensors");
  const auto checkpoint = OpenNewestCheckpoint(files_, "/d", {kTestRunId, &layout_});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().step, 100);
  ExpectHolds(**checkpoint, layout_, 100, 1);
}

TEST_F(RecoveryTest, WarnsOfDamagedManifests) {
  Damage(100, "MANIFEST.json");
  {
    const WarningSink sink;
    EXPECT_EQ((*OpenNewestCheckpoint(files_, "/d", {}))->manifest().step, 200);
    EXPECT_EQ(sink.Count("checkpoint ckpt-00000100 is not used"), 1);
    EXPECT_EQ(sink.Count("going back"), 0);
  }
  Save(3, 300);
  Damage(300, "MANIFEST.json");
  const WarningSink sink;
  EXPECT_EQ((*OpenNewestCheckpoint(files_, "/d", {}))->manifest().step, 200);
  EXPECT_EQ(sink.Count("checkpoint ckpt-00000300 is not used"), 1);
  EXPECT_EQ(sink.Count("going back to /d/ckpt-00000200"), 1);
}

TEST_F(RecoveryTest, ALaterEpochIsNewerThanAHigherStep) {
  Save(3, 150);
  EXPECT_EQ((*OpenNewestCheckpoint(files_, "/d", {}))->manifest().step, 150);
}

TEST_F(RecoveryTest, DoesNotTrustTheHint) {
  files_.Corrupt("/d/checkpoint", "ckpt-00000100\n");
  EXPECT_EQ((*OpenNewestCheckpoint(files_, "/d", {}))->manifest().step, 200);
}

TEST_F(RecoveryTest, DistinguishesNoCheckpointFromNoneThatVerifies) {
  ASSERT_EQ(files_.MakeDirectory("/empty"), absl::OkStatus());
  ASSERT_EQ(files_.MakeDirectory("/empty/.tmp-ckpt-00000300-e1"), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(OpenNewestCheckpoint(files_, "/empty", {}).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenNewestCheckpoint(files_, "/nowhere", {}).status()));

  Damage(200, "MANIFEST.json");
  Damage(100, "MANIFEST.json");
  const absl::Status none = OpenNewestCheckpoint(files_, "/d", {}).status();
  EXPECT_TRUE(absl::IsDataLoss(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("ckpt-00000100"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("ckpt-00000200"));
}

TEST_F(RecoveryTest, TheNewestManifestNeedsNoShardFiles) {
  EXPECT_TRUE(absl::IsNotFound(ReadNewestManifest(files_, "/nowhere", {}).status()));
  Save(3, 150);
  ASSERT_TRUE(files_.RemoveFile("/d/ckpt-00000150/shard-00000-of-00001.safetensors").ok());
  EXPECT_EQ(ReadNewestManifest(files_, "/d", {})->step, 150);
  Damage(150, "MANIFEST.json");
  EXPECT_EQ(ReadNewestManifest(files_, "/d", {})->step, 200);
  Damage(200, "MANIFEST.json");
  Damage(100, "MANIFEST.json");
  EXPECT_TRUE(absl::IsDataLoss(ReadNewestManifest(files_, "/d", {}).status()));
}

TEST_F(RecoveryTest, TheNewestManifestIsOfTheRunThatIsAskedFor) {
  CheckpointManifest foreign = MakeTestManifest(layout_, 9, 300);
  foreign.run_id = std::string(32, '0');
  ASSERT_TRUE(PublishOneShard(files_, "/d", layout_, foreign,
                              std::vector<float>(layout_.total_elements(), 1.0f))
                  .ok());
  EXPECT_EQ(ReadNewestManifest(files_, "/d", {})->step, 300);
  EXPECT_EQ(ReadNewestManifest(files_, "/d", {kTestRunId})->step, 200);
  EXPECT_EQ(ReadNewestManifest(files_, "/d", {foreign.run_id})->step, 300);
  const absl::Status none = ReadNewestManifest(files_, "/d", {std::string(32, '1')}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("ckpt-00000300 is of run 000000"));
}

TEST_F(RecoveryTest, AFolderWithoutManifestIsDamaged) {
  for (const char* name : {"/d/ckpt-00000100", "/d/ckpt-00000200"}) {
    ASSERT_EQ(files_.RemoveFile(std::string(name) + "/MANIFEST.json"), absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsDataLoss(OpenNewestCheckpoint(files_, "/d", {}).status()));
}

TEST_F(RecoveryTest, RefusesAMissingOrForeignShard) {
  const std::string shard = "/shard-00000-of-00001.safetensors";
  files_.Corrupt("/d/ckpt-00000200" + shard, *ReadWholeFile(files_, "/d/ckpt-00000100" + shard));
  EXPECT_TRUE(absl::IsDataLoss(Checkpoint::Open(files_, "/d", 200).status()));
  ASSERT_EQ(files_.RemoveFile("/d/ckpt-00000200" + shard), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(Checkpoint::Open(files_, "/d", 200).status()));
}

TEST_F(RecoveryTest, RefusesACopiedFolderOfAnotherStep) {
  ASSERT_EQ(files_.Rename("/d/ckpt-00000200", "/d/ckpt-00000300"), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(Checkpoint::Open(files_, "/d", 300).status()));
}

TEST_F(RecoveryTest, RefusesAnotherModelAndNamesItsFirstDifferentVariable) {
  const VariableLayout other = TestLayout(4);
  const absl::Status status = OpenNewestCheckpoint(files_, "/d", {"", &other}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Net/Logits/weights [4, 10]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Net/Logits/weights [3, 10]"));

  // All variables from number 1 on differ.
  std::vector<VariableSpec> variables = layout_.variables();
  for (size_t i = 1; i < variables.size(); ++i) variables[i].name += "_renamed";
  const VariableLayout renamed = *VariableLayout::Create(variables);
  const std::string difference(
      OpenNewestCheckpoint(files_, "/d", {"", &renamed}).status().message());
  EXPECT_THAT(difference, HasSubstr("variable 1 differs: Net/Conv/BatchNorm/beta_renamed [4]"));
  EXPECT_THAT(difference, Not(HasSubstr("Net/Logits")));
}

TEST_F(RecoveryTest, RefusesAnotherRun) {
  const absl::Status status =
      OpenNewestCheckpoint(files_, "/d", {std::string(32, '0'), &layout_}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kTestRunId));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/d/run_id, which names the run of this "
                                                       "folder, is missing"));
  ASSERT_EQ(WriteFileAtomically(files_, "/d/run_id", "another"), absl::OkStatus());
  const absl::Status foreign =
      OpenNewestCheckpoint(files_, "/d", {std::string(32, '0'), &layout_}).status();
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("but /d of run 000000"));
}

TEST(CheckpointNames, AcceptsOnlyTheSpellingThatItWrites) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  for (const char* name :
       {"ckpt-00000012", "ckpt-123456789", "ckpt-12", "ckpt-000000012", "ckpt--0000001",
        "ckpt-0000001x", "xckpt-00000001", ".tmp-ckpt-00000013-e1"}) {
    ASSERT_EQ(files.MakeDirectory(std::string("/d/") + name), absl::OkStatus());
  }
  EXPECT_EQ(*ListCheckpoints(files, "/d"), (std::vector<uint64_t>{12, 123456789}));
}

}  // namespace
}  // namespace pushpull
