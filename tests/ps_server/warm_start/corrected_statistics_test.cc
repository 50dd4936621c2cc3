#include "ps_server/warm_start/corrected_statistics.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/model_layout.h"
#include "ps_server/warm_start/tensor_source.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kMean[] = "MobilenetV2/Conv/BatchNorm/moving_mean";
constexpr char kVariance[] = "MobilenetV2/Conv/BatchNorm/moving_variance";
constexpr float kValue = 0.9f;  // of all variables in these checkpoints

// A valid config of a classifier whose batch norms have the decay 0.9 and these fields.
std::string ConfigText(const std::string& batch_norm, const std::string& classifier = "",
                       const std::string& train_config = "") {
  return absl::StrCat(
      "model { classifier { num_classes: 10 ", classifier,
      " image_resizer { fixed_shape_resizer { height: 32 width: 32 } } feature_extractor { type: "
      "'mobilenet_v2' depth_multiplier: 0.25 conv_hyperparams { activation: RELU_6 batch_norm { "
      "decay: 0.9 ",
      batch_norm, " } } } } } train_config { num_steps: 100 sync_replicas: true ", train_config,
      " optimizer { adam_optimizer { learning_rate { constant_learning_rate {} } } } } "
      "train_input_reader { synthetic_input_reader {} } eval_input_reader { "
      "synthetic_input_reader { seed: 2 } }");
}

config::TrainEvalPipelineConfig Parsed(const std::string& text) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

class CorrectedStatisticsTest : public ::testing::Test {
 protected:
  CorrectedStatisticsTest() { EXPECT_TRUE(files_.MakeDirectory("/run").ok()); }

  // Writes the checkpoint of this many updates.
  std::unique_ptr<Checkpoint> Publish(const std::string& config_text, uint64_t updates) {
    const VariableLayout layout = BuildVariableLayout(Parsed(config_text));
    const std::vector<float> weights(layout.total_elements(), kValue);
    CheckpointManifest manifest;
    manifest.run_id = "00112233445566778899aabbccddeeff";
    manifest.epoch = 1;
    manifest.step = updates;
    manifest.updates = updates;
    manifest.pipeline_config = config_text;
    const absl::Status published = PublishOneShard(files_, "/run", layout, manifest, weights);
    EXPECT_TRUE(published.ok()) << published;
    auto checkpoint = Checkpoint::Open(files_, "/run", updates);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return *std::move(checkpoint);
  }
  // Returns the first value of a variable as a warm start reads it.
  float Read(const std::string& variable) {
    const auto source = OpenTensorSource(files_, "/run");
    EXPECT_TRUE(source.ok()) << source.status();
    const SourceTensor* const tensor = (*source)->Find(variable);
    EXPECT_NE(tensor, nullptr) << variable;
    std::vector<float> values(tensor->num_elements());
    EXPECT_TRUE((*source)->Read(*tensor, absl::MakeSpan(values)).ok());
    return values[0];
  }

  MemoryFileSystem files_;
};

TEST_F(CorrectedStatisticsTest, AWarmStartReadsWhatTheEvaluatorUses) {
  Publish(ConfigText("bias_corrected_moving_statistics: true"), 2);
  // The initial values, 0 and 1, still have the weight 0.9^2.
  EXPECT_NEAR(Read(kMean), kValue / 0.19, 1e-4);
  EXPECT_NEAR(Read(kVariance), (kValue - 0.81) / 0.19, 1e-4);
  EXPECT_EQ(Read("MobilenetV2/Conv/weights"), kValue);
}

TEST_F(CorrectedStatisticsTest, AWarmStartKnowsTheNetworkOfACheckpoint) {
  const std::string text = ConfigText("");
  Publish(text, 2);
  const auto source = OpenTensorSource(files_, "/run");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->network(), BuildNetworkSpec(Parsed(text).model()));
}

TEST_F(CorrectedStatisticsTest, OtherStatisticsAreReadAsTheyAre) {
  Publish(ConfigText(""), 2);
  EXPECT_EQ(Read(kMean), kValue);
  EXPECT_EQ(Read(kVariance), kValue);
}

TEST_F(CorrectedStatisticsTest, FrozenBatchNormsNeedSettledStatistics) {
  const std::string corrected = "bias_corrected_moving_statistics: true";
  const auto checkpoint = Publish(ConfigText(corrected), 2);
  const auto check = [](const Checkpoint& from, const std::string& text) {
    return CheckFrozenStatistics(StatisticsOf(from), Parsed(text).model());
  };
  EXPECT_EQ(check(*checkpoint, ConfigText(corrected)), absl::OkStatus());
  const std::string freezes = ConfigText(corrected, "freeze_batchnorm: true");
  const absl::Status refused = check(*checkpoint, freezes);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(kMean), HasSubstr("81.0%"), HasSubstr("/run/ckpt-00000002"),
                    HasSubstr("fine_tune_checkpoint")));
  const std::string keeps_frozen = ConfigText("", "freeze_batchnorm: true");
  EXPECT_TRUE(absl::IsFailedPrecondition(check(*checkpoint, keeps_frozen)))
      << "without the field too";
  const auto settled = Publish(ConfigText(corrected), 200);
  EXPECT_EQ(check(*settled, freezes), absl::OkStatus());
  const auto plain = Publish(ConfigText(""), 201);
  EXPECT_EQ(check(*plain, freezes), absl::OkStatus());
}

class CorrectionHoldsTest : public CorrectedStatisticsTest {
 protected:
  // Returns whether training may go on with the config `now` from a checkpoint of the config
  // `before` and this many updates.
  absl::Status Check(const std::string& before, const std::string& now, uint64_t updates) {
    return CheckCorrectionHolds(StatisticsOf(*Publish(before, updates)), Parsed(now).model());
  }
  // Expects a refusal after few updates, and none where the initial values have no weight any more.
  void ExpectRefusedUntilSettled(const std::string& before, const std::string& now,
                                 const std::string& reason) {
    const absl::Status refused = Check(before, now, 2);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(kMean), HasSubstr("the 2 updates of /run/ckpt-00000002"),
                      HasSubstr(reason), HasSubstr("or begin a new train_dir")));
    EXPECT_EQ(Check(before, now, 200), absl::OkStatus());
  }
  static std::string WithDecay(const std::string& text, const std::string& decay) {
    return absl::StrReplaceAll(text, {{"decay: 0.9 ", absl::StrCat("decay: ", decay, " ")}});
  }

  const std::string plain_ = ConfigText("");
  const std::string corrected_ = ConfigText("bias_corrected_moving_statistics: true");
};

TEST_F(CorrectionHoldsTest, TheSameConfigAndNoCorrectionAreAccepted) {
  EXPECT_EQ(Check(corrected_, corrected_, 2), absl::OkStatus());
  EXPECT_EQ(Check(corrected_, plain_, 3), absl::OkStatus());
  EXPECT_EQ(Check(plain_, WithDecay(plain_, "0.5"), 4), absl::OkStatus());
}

TEST_F(CorrectionHoldsTest, StatisticsOfAWarmStartAreNotCorrected) {
  const std::string warm_start = ConfigText("", "", "fine_tune_checkpoint: '/other'");
  const std::string reason =
      "batch_norm.bias_corrected_moving_statistics was false there and is true now";
  ExpectRefusedUntilSettled(warm_start, corrected_, reason);
}

// An earlier config of the run, which the manifest does not have, may have had a warm start.
TEST_F(CorrectionHoldsTest, TheFieldIsThereFromTheStart) {
  const std::string reason =
      "batch_norm.bias_corrected_moving_statistics was false there and is true now";
  ExpectRefusedUntilSettled(plain_, corrected_, reason);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Check(ConfigText("bias_corrected_moving_statistics: false"), corrected_, 3)));
}

TEST_F(CorrectionHoldsTest, TheDecayStaysTheSame) {
  ExpectRefusedUntilSettled(WithDecay(corrected_, "0.5"), corrected_,
                            "batch_norm.decay was 0.5 there and is 0.9 now. Set it back, or begin");
  ExpectRefusedUntilSettled(
      corrected_, WithDecay(corrected_, "0.01"),
      "batch_norm.decay was 0.9 there and is 0.01 now. Set it back, or begin");
  const absl::Status settled_there = Check(WithDecay(corrected_, "0.5"), corrected_, 30);
  EXPECT_TRUE(absl::IsFailedPrecondition(settled_there)) << settled_there;
  EXPECT_THAT(std::string(settled_there.message()),
              HasSubstr("Set it back, or remove batch_norm.bias_corrected_moving_statistics"));
}

TEST_F(CorrectionHoldsTest, FrozenStatisticsWereNotUpdated) {
  const std::string reason = "it was frozen there";
  ExpectRefusedUntilSettled(ConfigText("bias_corrected_moving_statistics: true train: false"),
                            corrected_, reason);
  const std::string freezes =
      ConfigText("bias_corrected_moving_statistics: true", "freeze_batchnorm: true");
  EXPECT_TRUE(absl::IsFailedPrecondition(Check(freezes, corrected_, 3)));
  EXPECT_EQ(Check(freezes, freezes, 4), absl::OkStatus());
}

TEST_F(CorrectedStatisticsTest, AnInvalidConfigIsAnErrorOnlyIfItIsNeeded) {
  const std::string invalid = "max_to_keep: 0";
  const auto plain = Publish(ConfigText("", "", invalid), 1);
  EXPECT_TRUE(CorrectionsOf(*plain).ok());
  const auto corrected =
      Publish(ConfigText("bias_corrected_moving_statistics: true", "", invalid), 2);
  const absl::Status refused = CorrectionsOf(*corrected).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train_config.max_to_keep"));
  const config::DetectionModel model =
      Parsed(ConfigText("bias_corrected_moving_statistics: true")).model();
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckCorrectionHolds(StatisticsOf(*plain), model)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckCorrectionHolds(StatisticsOf(*corrected), model)));
}

}  // namespace
}  // namespace pushpull
