// The effective config, which --check_config prints: it is valid if the config is, and means the
// same.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "common/config/pipeline_config.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Everything but the model.
constexpr char kJob[] = R"(
  train_config {
    num_steps: 100
    optimizer { adam_optimizer { learning_rate { constant_learning_rate {} } } }
  }
  train_input_reader { synthetic_input_reader {} }
  eval_input_reader { synthetic_input_reader {} }
)";

// Returns a config with the fields of a model.classifier, for images of 32 x 32 pixels.
config::TrainEvalPipelineConfig Classifier(const std::string& fields) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(kJob,
                   "model { classifier { num_classes: 10 image_resizer { fixed_shape_resizer { "
                   "height: 32 width: 32 } } ",
                   fields, " } }"),
      &config))
      << fields;
  return config;
}

config::TrainEvalPipelineConfig Detector(const std::string& type, const std::string& ssd = "") {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(type, "num_classes: 10 " + ssd);
  EXPECT_TRUE(google::protobuf::TextFormat::Parser().MergeFromString(kJob, &config));
  return config;
}

// Expects a valid config whose effective config is valid, has no more warnings, and gives the same
// network and the same variables. Returns the effective config.
config::TrainEvalPipelineConfig ExpectSame(const config::TrainEvalPipelineConfig& config) {
  const ConfigReport report = ValidatePipelineConfig(config, {});
  EXPECT_TRUE(report.ToStatus("").ok()) << report.ToStatus("the config");
  const std::string text = EffectiveConfigText(config);
  const auto effective = ParsePipelineConfig(text, "effective");
  EXPECT_TRUE(effective.ok()) << effective.status();
  if (!effective.ok()) return {};
  const ConfigReport again = ValidatePipelineConfig(*effective, {});
  EXPECT_TRUE(again.ToStatus("").ok()) << again.ToStatus("the effective config") << "\n" << text;
  EXPECT_LE(again.warnings.size(), report.warnings.size()) << again.warnings.back();
  if (!report.problems.empty() || !again.problems.empty()) return *effective;
  EXPECT_TRUE(BuildNetworkSpec(effective->model()) == BuildNetworkSpec(config.model())) << text;
  EXPECT_TRUE(BuildVariableLayout(*effective).variables() ==
              BuildVariableLayout(config).variables())
      << text;
  EXPECT_EQ(EffectiveConfigText(*effective), text);
  return *effective;
}

TEST(EffectiveConfigTest, TheExamplesMeanTheSame) {
  for (const auto& entry :
       std::filesystem::directory_iterator(PUSHPULL_SOURCE_DIR "/deploy/pipelines")) {
    if (entry.path().extension() != ".config") continue;
    SCOPED_TRACE(entry.path().string());
    const auto config = LoadPipelineConfig(entry.path().string());
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(ValidatePipelineConfig(ExpectSame(*config), {}).warnings, IsEmpty());
  }
}

TEST(EffectiveConfigTest, NetworksOfAllTypesStayTheSame) {
  for (const absl::string_view type : ClassifierTypeNames()) {
    SCOPED_TRACE(std::string(type));
    for (const char* conv_hyperparams : {"", "conv_hyperparams { batch_norm {} }"}) {
      ExpectSame(Classifier(absl::StrCat("hidden_units: 64 feature_extractor { type: '", type, "' ",
                                         conv_hyperparams, " }")));
    }
  }
  for (const absl::string_view type : SsdTypeNames()) {
    SCOPED_TRACE(std::string(type));
    config::TrainEvalPipelineConfig config =
        Detector(std::string(type), SsdTestSettings(type, 128));
    if (FindSsdType(type)->base == BaseHyperparams::kUser) {
      config.mutable_model()
          ->mutable_ssd()
          ->mutable_feature_extractor()
          ->set_override_base_feature_extractor_hyperparams(true);
    }
    ExpectSame(config);
  }
}

TEST(EffectiveConfigTest, TheHiddenLayerKeepsTheActivationOfTheConvolutions) {
  ExpectSame(
      Classifier("hidden_units: 64 feature_extractor { type: 'mobilenet_v2' "
                 "conv_hyperparams { batch_norm {} activation: RELU_6 } }"));
}

TEST(EffectiveConfigTest, AnActivationIsWrittenOnlyIfTheConfigSetsIt) {
  ExpectSame(
      Classifier("feature_extractor { type: 'mobilenet_v3_small' "
                 "conv_hyperparams { batch_norm {} } }"));
}

TEST(EffectiveConfigTest, ADetectorKeepsRegularizingDepthwiseConvolutions) {
  const config::TrainEvalPipelineConfig unset = Detector("ssd_mobilenet_v2");
  ExpectSame(unset);
  const config::TrainEvalPipelineConfig off = Detector(
      "ssd_mobilenet_v2", "feature_extractor { conv_hyperparams { regularize_depthwise: false } }");
  ExpectSame(off);
  EXPECT_FALSE(BuildNetworkSpec(off.model()) == BuildNetworkSpec(unset.model()));
}

TEST(EffectiveConfigTest, AFocalLossWithoutAlphaKeepsEqualWeights) {
  config::TrainEvalPipelineConfig config =
      Detector("ssd_mobilenet_v2", "loss { classification_loss { weighted_sigmoid_focal {} } }");
  config.mutable_model()->mutable_ssd()->mutable_loss()->clear_hard_example_miner();
  ExpectSame(config);
}

// An operation without a colour pads with black. The default operations, which pad with the mean
// colour, are not written out.
TEST(EffectiveConfigTest, PaddingKeepsItsColour) {
  config::TrainEvalPipelineConfig config = Detector("ssd_mobilenet_v2");
  ASSERT_TRUE(google::protobuf::TextFormat::Parser().MergeFromString(
      "train_config { data_augmentation_options { ssd_random_crop_pad { operations { "
      "max_area: 1 min_aspect_ratio: 1 max_aspect_ratio: 1 min_padded_size_ratio: [1, 1] "
      "max_padded_size_ratio: [2, 2] pad_color_g: 22 } } } "
      "data_augmentation_options { ssd_random_crop_pad {} } }",
      &config));
  const config::TrainEvalPipelineConfig effective = ExpectSame(config);
  const config::SSDRandomCropPadOperation& operation =
      effective.train_config().data_augmentation_options(0).ssd_random_crop_pad().operations(0);
  EXPECT_EQ(operation.pad_color_r(), 0.0f);
  EXPECT_EQ(operation.pad_color_g(), 22.0f);
  EXPECT_EQ(operation.pad_color_b(), 0.0f);
  EXPECT_EQ(
      effective.train_config().data_augmentation_options(1).ssd_random_crop_pad().operations_size(),
      0);
}

TEST(EffectiveConfigTest, SaysThatAnEvaluationTakesTheExamplesInOrder) {
  const config::TrainEvalPipelineConfig effective =
      ExpectSame(Classifier("feature_extractor { type: 'mobilenet_v2' }"));
  EXPECT_TRUE(effective.train_input_reader().shuffle());
  EXPECT_TRUE(effective.eval_input_reader(0).has_shuffle());
  EXPECT_FALSE(effective.eval_input_reader(0).shuffle());
  EXPECT_THAT(EffectiveConfigText(effective), HasSubstr("shuffle: true"));
}

}  // namespace
}  // namespace pushpull
