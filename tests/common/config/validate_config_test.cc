#include "common/config/validate_config.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "common/config/pipeline_config.h"
#include "common/model/model_layout.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kGoodConfig[] = R"(
  model {
    classifier {
      num_classes: 10
      image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
      feature_extractor { type: "mobilenet_v2" }
    }
  }
  train_config {
    num_steps: 100
    sync_replicas: true
    optimizer { adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
  }
  train_input_reader { synthetic_input_reader {} }
  eval_input_reader { synthetic_input_reader { seed: 2 } }
)";

// Returns kGoodConfig with `patch` merged over it.
config::TrainEvalPipelineConfig Good(const std::string& patch = "") {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGoodConfig, &config));
  google::protobuf::TextFormat::Parser parser;
  EXPECT_TRUE(parser.MergeFromString(patch, &config)) << patch;
  return config;
}

std::string Problems(const config::TrainEvalPipelineConfig& config,
                     const ConfigContext& context = {}) {
  return std::string(ValidatePipelineConfig(config, context).ToStatus("job.config").message());
}

std::string Warnings(const config::TrainEvalPipelineConfig& config) {
  return absl::StrJoin(ValidatePipelineConfig(config, {}).warnings, "\n");
}

TEST(ValidateConfigTest, AGoodConfigHasNoProblemsAndNoWarnings) {
  const ConfigReport report = ValidatePipelineConfig(Good(), {});
  EXPECT_TRUE(report.ToStatus("job.config").ok()) << report.ToStatus("job.config");
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(ValidateConfigTest, TheExamplesAreValid) {
  for (const auto& entry :
       std::filesystem::directory_iterator(PUSHPULL_SOURCE_DIR "/deploy/pipelines")) {
    if (entry.path().extension() != ".config") continue;
    const auto config = LoadPipelineConfig(entry.path().string());
    ASSERT_TRUE(config.ok()) << config.status();
    ConfigContext context;
    context.num_clones = 3;
    const ConfigReport report = ValidatePipelineConfig(*config, context);
    EXPECT_TRUE(report.ToStatus("").ok()) << entry.path() << report.ToStatus("");
    EXPECT_THAT(report.warnings, IsEmpty()) << entry.path();
  }
}

TEST(ValidateConfigTest, AnEmptyConfigListsEverythingThatIsMissing) {
  const std::string problems = Problems(config::TrainEvalPipelineConfig());
  for (const char* field :
       {"model:", "train_config.optimizer:", "train_input_reader:", "eval_input_reader:"}) {
    EXPECT_THAT(problems, HasSubstr(absl::StrCat("\n  ", field))) << field;
  }
  EXPECT_THAT(problems, HasSubstr("job.config has 4 problems:"));
}

TEST(ValidateConfigTest, SeveralProblemsAreReportedAtOnce) {
  auto config = Good();
  config.mutable_train_config()->set_batch_size(0);
  config.mutable_model()->mutable_classifier()->set_num_channels(2);
  config.mutable_model()->mutable_classifier()->mutable_feature_extractor()->set_type("resnet");
  const absl::Status status = ValidatePipelineConfig(config, {}).ToStatus("job.config");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("job.config has 3 problems:"),
                    HasSubstr("train_config.batch_size: expected at least 1, got 0"),
                    HasSubstr("model.classifier.num_channels: expected 1 (grey) or 3 (RGB), got 2"),
                    HasSubstr(absl::StrCat(
                        "model.classifier.feature_extractor.type: expected one of \"",
                        absl::StrJoin(ClassifierTypeNames(), "\", \""), "\", got \"resnet\""))));
}

TEST(ValidateConfigTest, SuggestsTheTypeThatWasProbablyMeant) {
  auto config = Good();
  config.mutable_model()->mutable_classifier()->mutable_feature_extractor()->set_type(
      "mobilenet_v3_larg");
  EXPECT_THAT(Problems(config),
              HasSubstr("got \"mobilenet_v3_larg\"; did you mean \"mobilenet_v3_large\"?"));
}

struct BadPatch {
  const char* patch;
  const char* field;
};

class BadPatchTest : public testing::TestWithParam<BadPatch> {};

TEST_P(BadPatchTest, CausesOneProblemThatNamesTheField) {
  const ConfigReport report = ValidatePipelineConfig(Good(GetParam().patch), {});
  ASSERT_EQ(report.problems.size(), 1u) << report.ToStatus("");
  EXPECT_EQ(report.problems[0].field, GetParam().field) << report.ToStatus("");
}

#define CLASSIFIER(text) "model { classifier { " text " } }"
#define ADAM_RATE(text) \
  "train_config { optimizer { adam_optimizer { learning_rate { " text " } } } }"
#define AUGMENT(text) "train_config { data_augmentation_options { " text " } }"
#define AUGMENTATION(name) "train_config.data_augmentation_options[0]." name
#define CROP_PAD(text)                                                      \
  AUGMENT(                                                                  \
      "ssd_random_crop_pad { operations { max_area: 1 min_aspect_ratio: 1 " \
      "max_aspect_ratio: 1 " text " } }")
constexpr char kAugmentation[] = "train_config.data_augmentation_options[0]";
constexpr char kRateField[] = "train_config.optimizer.adam_optimizer.learning_rate.";

INSTANTIATE_TEST_SUITE_P(
    Fields, BadPatchTest,
    testing::Values(
        BadPatch{CLASSIFIER("num_classes: 1"), "model.classifier.num_classes"},
        BadPatch{CLASSIFIER("image_resizer { fixed_shape_resizer { height: 31 } }"),
                 "model.classifier.image_resizer.fixed_shape_resizer.height"},
        BadPatch{CLASSIFIER("image_resizer { fixed_shape_resizer { resize_method: BICUBIC } }"),
                 "model.classifier.image_resizer.fixed_shape_resizer.resize_method"},
        BadPatch{CLASSIFIER("image_resizer { identity_resizer {} }"),
                 "model.classifier.image_resizer.identity_resizer"},
        BadPatch{
            CLASSIFIER(
                "image_resizer { keep_aspect_ratio_resizer { max_dimension: 96 min_dimension: 64"
                "  pad_to_max_dimension: true min_dimension: 97 } }"),
            "model.classifier.image_resizer.keep_aspect_ratio_resizer.min_dimension"},
        BadPatch{
            CLASSIFIER(
                "image_resizer { keep_aspect_ratio_resizer { max_dimension: 96 min_dimension: 64"
                "  pad_to_max_dimension: true per_channel_pad_value: 7 } }"),
            "model.classifier.image_resizer.keep_aspect_ratio_resizer.per_channel_pad_value"},
        BadPatch{CLASSIFIER("dropout_keep_probability: 0"),
                 "model.classifier.dropout_keep_probability"},
        BadPatch{CLASSIFIER("label_smoothing: 1"), "model.classifier.label_smoothing"},
        BadPatch{CLASSIFIER("logits_initializer { random_normal_initializer { stddev: 0 } }"),
                 "model.classifier.logits_initializer.random_normal_initializer.stddev"},
        BadPatch{CLASSIFIER("hidden_units: -1"), "model.classifier.hidden_units"},
        BadPatch{CLASSIFIER("hidden_activation: NONE"), "model.classifier.hidden_activation"},
        BadPatch{"model { classifier { hidden_units: 8 hidden_activation: RELU "
                 "feature_extractor { type: 'resnet_v1_50' "
                 "conv_hyperparams { batch_norm {} activation: RELU_6 } } } }",
                 "model.classifier.feature_extractor.conv_hyperparams.activation"},
        BadPatch{CLASSIFIER("feature_extractor { depth_multiplier: 0 }"),
                 "model.classifier.feature_extractor.depth_multiplier"},
        BadPatch{CLASSIFIER("feature_extractor { depth_multiplier: nan }"),
                 "model.classifier.feature_extractor.depth_multiplier"},
        BadPatch{CLASSIFIER("feature_extractor { depth_multiplier: 4.1 }"),
                 "model.classifier.feature_extractor.depth_multiplier"},
        BadPatch{CLASSIFIER("feature_extractor { min_depth: 16385 }"),
                 "model.classifier.feature_extractor.min_depth"},
        BadPatch{CLASSIFIER("num_channels: 2"), "model.classifier.num_channels"},
        BadPatch{CLASSIFIER("image_resizer { fixed_shape_resizer { width: 4097 } }"),
                 "model.classifier.image_resizer.fixed_shape_resizer.width"},
        BadPatch{CLASSIFIER("feature_extractor { conv_hyperparams {} }"),
                 "model.classifier.feature_extractor.conv_hyperparams.batch_norm"},
        BadPatch{CLASSIFIER("feature_extractor { conv_hyperparams { sync_batch_norm {} } }"),
                 "model.classifier.feature_extractor.conv_hyperparams.sync_batch_norm"},
        BadPatch{CLASSIFIER("feature_extractor { conv_hyperparams { batch_norm { decay: 1 } } }"),
                 "model.classifier.feature_extractor.conv_hyperparams.batch_norm.decay"},
        BadPatch{CLASSIFIER("feature_extractor { type: 'vgg_a' conv_hyperparams {} }"),
                 "model.classifier.feature_extractor.conv_hyperparams.initializer"},
        BadPatch{CLASSIFIER("feature_extractor { type: 'vgg_a' } "
                            "image_resizer { fixed_shape_resizer { height: 64 width: 65 } }"),
                 "model.classifier.image_resizer"},
        BadPatch{CLASSIFIER("feature_extractor { type: 'vgg_a' } "
                            "image_resizer { fixed_shape_resizer { height: 257 width: 257 } }"),
                 "model.classifier.image_resizer"},
        BadPatch{"model { classifier { feature_extractor { type: 'mobilenet_v3_small' "
                 "conv_hyperparams { batch_norm {} activation: RELU_6 } } } }",
                 "model.classifier.feature_extractor.conv_hyperparams.activation"},
        BadPatch{"train_config { max_to_keep: 0 }", "train_config.max_to_keep"},
        BadPatch{"train_config { keep_checkpoint_every_n_hours: 0 }",
                 "train_config.keep_checkpoint_every_n_hours"},
        BadPatch{"train_config { save_checkpoints_secs: -1 }",
                 "train_config.save_checkpoints_secs"},
        BadPatch{"train_config { freeze_variables: 'a' freeze_variables: '(' }",
                 "train_config.freeze_variables[1]"},
        BadPatch{"train_config { freeze_variables: '' }", "train_config.freeze_variables[0]"},
        BadPatch{"train_config { update_trainable_variables: '' }",
                 "train_config.update_trainable_variables[0]"},
        BadPatch{"train_config { step_deadline_secs: 3 }", "train_config.min_contributors"},
        BadPatch{"train_config { min_contributors: 3 }", "train_config.step_deadline_secs"},
        BadPatch{
            "train_config { gradient_clipping_by_norm: 1 gradient_clipping_by_global_norm: 1 }",
            "train_config.gradient_clipping_by_global_norm"},
        BadPatch{"train_config { gradient_clipping_by_norm: inf }",
                 "train_config.gradient_clipping_by_norm"},
        BadPatch{"train_config { fine_tune_checkpoint_type: 'a' }",
                 "train_config.fine_tune_checkpoint_type"},
        BadPatch{"train_config { data_augmentation_options { random_black_patches {} } }",
                 "train_config.data_augmentation_options[0].random_black_patches"},
        BadPatch{AUGMENT(""), kAugmentation},
        BadPatch{"train_config { data_augmentation_options { random_shift {} } "
                 "data_augmentation_options { rgb_to_gray {} } }",
                 kAugmentation},
        BadPatch{AUGMENT("random_shift { max_pixels: 4000000000 }"),
                 AUGMENTATION("random_shift.max_pixels")},
        BadPatch{AUGMENT("random_horizontal_flip { probability: 1.1 }"),
                 AUGMENTATION("random_horizontal_flip.probability")},
        BadPatch{AUGMENT("random_vertical_flip { probability: nan }"),
                 AUGMENTATION("random_vertical_flip.probability")},
        BadPatch{AUGMENT("random_rotation90 { probability: -0.1 }"),
                 AUGMENTATION("random_rotation90.probability")},
        BadPatch{AUGMENT("random_crop_image { min_area: 0.9 max_area: 0.2 }"),
                 AUGMENTATION("random_crop_image.max_area")},
        BadPatch{AUGMENT("random_crop_image { min_aspect_ratio: 0 }"),
                 AUGMENTATION("random_crop_image.min_aspect_ratio")},
        BadPatch{AUGMENT("ssd_random_crop { operations { max_area: 1 max_aspect_ratio: 1 "
                         "min_aspect_ratio: 1 overlap_thresh: 7 } }"),
                 AUGMENTATION("ssd_random_crop.operations[0].overlap_thresh")},
        BadPatch{CROP_PAD("min_padded_size_ratio: 1 max_padded_size_ratio: [2, 2]"),
                 AUGMENTATION("ssd_random_crop_pad.operations[0].min_padded_size_ratio")},
        BadPatch{CROP_PAD("min_padded_size_ratio: [0, 0] max_padded_size_ratio: [2, 0]"),
                 AUGMENTATION("ssd_random_crop_pad.operations[0].max_padded_size_ratio")},
        BadPatch{CROP_PAD("min_padded_size_ratio: [1, 1] max_padded_size_ratio: [17, 2]"),
                 AUGMENTATION("ssd_random_crop_pad.operations[0].max_padded_size_ratio")},
        BadPatch{AUGMENT("random_pad_image { pad_color: [0, 255, 256] }"),
                 AUGMENTATION("random_pad_image.pad_color[2]")},
        BadPatch{AUGMENT("random_pad_image { pad_color: [-1, 0, 0] }"),
                 AUGMENTATION("random_pad_image.pad_color[0]")},
        BadPatch{CROP_PAD("pad_color_g: 300 min_padded_size_ratio: [1, 1] "
                          "max_padded_size_ratio: [2, 2]"),
                 AUGMENTATION("ssd_random_crop_pad.operations[0].pad_color_g")},
        BadPatch{AUGMENT("random_pad_image { pad_color: 3 }"),
                 AUGMENTATION("random_pad_image.pad_color")},
        BadPatch{AUGMENT("random_pad_image { max_image_width: 9000 }"),
                 AUGMENTATION("random_pad_image.max_image_width")},
        BadPatch{AUGMENT("random_pixel_value_scale { minval: -1 }"),
                 AUGMENTATION("random_pixel_value_scale.minval")},
        BadPatch{AUGMENT("random_adjust_brightness { max_delta: 2 }"),
                 AUGMENTATION("random_adjust_brightness.max_delta")},
        BadPatch{AUGMENT("random_adjust_contrast { min_delta: 2 }"),
                 AUGMENTATION("random_adjust_contrast.max_delta")},
        BadPatch{AUGMENT("random_adjust_hue { max_delta: 0.6 }"),
                 AUGMENTATION("random_adjust_hue.max_delta")},
        BadPatch{AUGMENT("random_adjust_saturation { max_delta: inf }"),
                 AUGMENTATION("random_adjust_saturation.max_delta")},
        BadPatch{AUGMENT("random_rgb_to_gray { probability: 2 }"),
                 AUGMENTATION("random_rgb_to_gray.probability")},
        BadPatch{AUGMENT("random_distort_color { color_ordering: 2 }"),
                 AUGMENTATION("random_distort_color.color_ordering")},
        BadPatch{"train_config { optimizer { moving_average_decay: 1 } }",
                 "train_config.optimizer.moving_average_decay"},
        BadPatch{"train_config { optimizer { use_moving_average: false "
                 "moving_average_warmup: true } }",
                 "train_config.optimizer.moving_average_warmup"},
        BadPatch{"train_config { optimizer { adam_optimizer { epsilon: 0 } } }",
                 "train_config.optimizer.adam_optimizer.epsilon"},
        BadPatch{"train_config { optimizer { adamw_optimizer { learning_rate { "
                 "constant_learning_rate {} } beta1: 1 } } }",
                 "train_config.optimizer.adamw_optimizer.beta1"},
        BadPatch{"train_config { gradient_clipping_by_norm: 1 optimizer { lamb_optimizer { "
                 "learning_rate { constant_learning_rate {} } } } }",
                 "train_config.gradient_clipping_by_norm"},
        BadPatch{"train_config { optimizer { momentum_optimizer {} } }",
                 "train_config.optimizer.momentum_optimizer.learning_rate"},
        BadPatch{"train_input_reader { sample_1_of_n_examples: 0 }",
                 "train_input_reader.sample_1_of_n_examples"},
        BadPatch{"eval_config { max_num_boxes_to_visualize: -1 }",
                 "eval_config.max_num_boxes_to_visualize"},
        BadPatch{"train_input_reader { tf_record_input_reader { input_path: "
                 "'PATH_TO_BE_CONFIGURED/x' } }",
                 "train_input_reader.tf_record_input_reader.input_path[0]"},
        BadPatch{"train_input_reader { tf_record_input_reader { input_path: 'gs://bucket/x' } }",
                 "train_input_reader.tf_record_input_reader.input_path[0]"},
        BadPatch{"train_input_reader { external_input_reader {} }",
                 "train_input_reader.external_input_reader"},
        BadPatch{"train_input_reader { image_folder_input_reader {} }",
                 "train_input_reader.image_folder_input_reader.path"},
        BadPatch{
            "train_input_reader { image_folder_input_reader { path: 'PATH_TO_BE_CONFIGURED/x' } }",
            "train_input_reader.image_folder_input_reader.path"},
        BadPatch{"train_input_reader { image_folder_input_reader { path: 'gs://bucket/x' } }",
                 "train_input_reader.image_folder_input_reader.path"},
        BadPatch{"train_input_reader { synthetic_input_reader { num_classes: 11 } }",
                 "train_input_reader.synthetic_input_reader.num_classes"},
        BadPatch{"train_input_reader { synthetic_input_reader { num_classes: 9 } }",
                 "train_input_reader.synthetic_input_reader.num_classes"},
        BadPatch{"train_input_reader { synthetic_input_reader { num_examples: 0 } }",
                 "train_input_reader.synthetic_input_reader.num_examples"},
        BadPatch{"train_input_reader { synthetic_input_reader { height: 8 } }",
                 "train_input_reader.synthetic_input_reader.height"},
        BadPatch{"train_input_reader { synthetic_input_reader { width: 100000 } }",
                 "train_input_reader.synthetic_input_reader.width"},
        BadPatch{"train_input_reader { synthetic_input_reader { num_channels: 2 } }",
                 "train_input_reader.synthetic_input_reader.num_channels"},
        BadPatch{"train_input_reader { synthetic_input_reader { max_objects: 101 height: 64 "
                 "width: 64 } }",
                 "train_input_reader.synthetic_input_reader.max_objects"},
        BadPatch{"train_input_reader { synthetic_input_reader { max_objects: 2 height: 63 "
                 "width: 64 } }",
                 "train_input_reader.synthetic_input_reader.height"},
        BadPatch{"train_input_reader { idx_input_reader { images_path: 'i' } }",
                 "train_input_reader.idx_input_reader.labels_path"},
        BadPatch{"train_input_reader { label_map_path: 'm' synthetic_input_reader {} }",
                 "train_input_reader.label_map_path"},
        BadPatch{"train_input_reader { tf_record_input_reader {} }",
                 "train_input_reader.tf_record_input_reader.input_path"},
        BadPatch{"train_input_reader { voc_input_reader { path: 'v' split: 's' } }",
                 "train_input_reader"},
        BadPatch{"eval_input_reader { synthetic_input_reader {} }", "eval_input_reader"},
        BadPatch{"eval_config { batch_size: 0 }", "eval_config.batch_size"},
        BadPatch{"eval_config { use_moving_averages: true } train_config { optimizer { "
                 "use_moving_average: false } }",
                 "eval_config.use_moving_averages"},
        BadPatch{"graph_rewriter {}", "graph_rewriter"}));

TEST(ValidateConfigTest, ChecksSchedules) {
  EXPECT_THAT(
      Problems(Good(ADAM_RATE("constant_learning_rate { learning_rate: -1 }"))),
      HasSubstr(absl::StrCat(
          kRateField, "constant_learning_rate.learning_rate: expected a number of at least 0")));
  const std::string manual = Problems(
      Good(ADAM_RATE("manual_step_learning_rate { schedule { step: 0 } schedule { step: 9 } "
                     "schedule { step: 9 } schedule { step: 10 } }")));
  EXPECT_THAT(manual, HasSubstr("has 2 problems"));
  EXPECT_THAT(manual, HasSubstr("schedule[0].step: expected a step above 0, got 0"));
  EXPECT_THAT(manual,
              HasSubstr("schedule[2].step: expected a step above the one before it (9), got 9"));
  const std::string cosine =
      Problems(Good(ADAM_RATE("cosine_decay_learning_rate { learning_rate_base: 0.0001 "
                              "total_steps: 100 hold_base_rate_steps: 5 }")));
  EXPECT_THAT(
      cosine,
      HasSubstr("learning_rate_base: expected at least warmup_learning_rate (0.0002), got 0.0001"));
  EXPECT_THAT(
      cosine,
      HasSubstr(
          "total_steps: expected at least warmup_steps + hold_base_rate_steps (10005), got 100"));
  EXPECT_THAT(Problems(Good(ADAM_RATE("exponential_decay_learning_rate { decay_steps: 0 }"))),
              HasSubstr("decay_steps: expected at least 1, got 0"));
}

// A pattern of 100,000 brackets once overflowed the stack of the regular expression library.
TEST(ValidateConfigTest, BoundsTheLengthOfPatterns) {
  config::TrainEvalPipelineConfig config = Good();
  config.mutable_train_config()->add_freeze_variables(std::string(100000, '('));
  EXPECT_THAT(Problems(config), HasSubstr("train_config.freeze_variables[0]: expected a regular "
                                          "expression of at most 1000 bytes, got 100000 bytes"));
}

TEST(ValidateConfigTest, ListsOnlyTheFirstHundredProblems) {
  config::TrainEvalPipelineConfig config = Good();
  for (int i = 0; i < 20000; ++i) config.mutable_train_config()->add_freeze_variables("(");
  const std::string problems = Problems(config);
  EXPECT_THAT(problems, HasSubstr("job.config has 20000 problems:"));
  EXPECT_THAT(problems, HasSubstr("freeze_variables[99]"));
  EXPECT_THAT(problems, Not(HasSubstr("freeze_variables[100]")));
  EXPECT_THAT(problems, HasSubstr("\n  and 19900 more"));
}

TEST(ValidateConfigTest, BatchNeedsAnImagePerClone) {
  ConfigContext context;
  context.num_clones = 3;
  context.num_workers = 2;
  auto config = Good("train_config { batch_size: 5 }");
  EXPECT_THAT(Problems(config, context),
              HasSubstr("train_config.batch_size: expected at least one image per clone (6)"));
  context.sync = false;  // now each clone computes whole batches
  config.mutable_train_config()->set_batch_size(1);
  EXPECT_TRUE(ValidatePipelineConfig(config, context).ToStatus("").ok());
}

TEST(ValidateConfigTest, BothModesClip) {
  ConfigContext context;
  for (const bool sync : {true, false}) {
    context.sync = sync;
    for (const char* clipping :
         {"gradient_clipping_by_norm: 1", "gradient_clipping_by_global_norm: 1",
          "gradient_clipping_by_norm: 1 local_steps: 2"}) {
      EXPECT_EQ(Problems(Good(absl::StrCat("train_config { ", clipping, " }")), context), "")
          << clipping;
    }
  }
}

TEST(ValidateConfigTest, RefusesMoreContributorsThanClones) {
  ConfigContext context;
  context.num_clones = 3;
  EXPECT_THAT(
      Problems(Good("train_config { min_contributors: 4 step_deadline_secs: 1 }"), context),
      HasSubstr("train_config.min_contributors: expected at most the number of clones (3), got 4"));
}

TEST(ValidateConfigTest, ExplainsPlaceholdersAndRemotePaths) {
  ConfigContext context;
  context.check_train_input = true;  // the check must not also look for the path
  auto config =
      Good("train_input_reader { image_folder_input_reader { path: 'PATH_TO_BE_CONFIGURED/x' } }");
  EXPECT_THAT(Problems(config, context),
              AllOf(HasSubstr("has 1 problem:"), HasSubstr("placeholder of a sample config")));
  config = Good("train_input_reader { image_folder_input_reader { path: 'gs://b/x' } }");
  EXPECT_THAT(Problems(config, context),
              AllOf(HasSubstr("has 1 problem:"), HasSubstr("remote storage is not read")));
}

TEST(ValidateConfigTest, OnlyMissingInputsAreNotFound) {
  const TestFolder folder;
  folder.Write("images", "x");
  auto config = Good(
      "train_input_reader { idx_input_reader { images_path: 'images' labels_path: 'labels' } }");
  ConfigContext context;
  context.data_dir = folder.path();
  EXPECT_TRUE(ValidatePipelineConfig(config, context).ToStatus("").ok())
      << "inputs are only checked on request";
  context.check_train_input = true;
  const absl::Status status = ValidatePipelineConfig(config, context).ToStatus("job.config");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("train_input_reader.idx_input_reader.labels_path"),
                    HasSubstr(folder.path() + "/labels"), HasSubstr("does not exist"),
                    Not(HasSubstr("images_path"))));
  config.mutable_train_config()->set_batch_size(0);
  EXPECT_EQ(ValidatePipelineConfig(config, context).ToStatus("").code(),
            absl::StatusCode::kInvalidArgument);
  config = Good("train_input_reader { image_folder_input_reader { path: 'images' } }");
  EXPECT_THAT(Problems(config, context), HasSubstr("expected a folder, got"));
}

TEST(ValidateConfigTest, LimitsTrainingByStepsOrEpochs) {
  EXPECT_EQ(Warnings(Good("train_input_reader { num_epochs: 2 }")), "");
  EXPECT_EQ(Problems(Good("train_input_reader { num_epochs: 2 }")), "");
  EXPECT_EQ(Warnings(Good("train_config { num_steps: 0 } train_input_reader { num_epochs: 2 }")),
            "");
  EXPECT_THAT(Warnings(Good("train_config { num_steps: 0 }")),
              HasSubstr("train_config.num_steps and train_input_reader.num_epochs are 0: training "
                        "goes on until it is stopped"));
}

TEST(ValidateConfigTest, AnEvaluationIsOneEpochInOrder) {
  config::TrainEvalPipelineConfig config = Good();
  config.mutable_eval_input_reader(0)->set_num_epochs(1);
  config.mutable_eval_input_reader(0)->set_shuffle(false);
  EXPECT_EQ(Problems(config), "");
  EXPECT_EQ(Warnings(config), "");
  config.mutable_eval_input_reader(0)->set_shuffle(true);
  EXPECT_EQ(Problems(config), "");
  EXPECT_THAT(Warnings(config), HasSubstr("eval_input_reader.shuffle has no effect: "));
  config.mutable_eval_input_reader(0)->set_num_epochs(2);
  EXPECT_THAT(Problems(config), HasSubstr("eval_input_reader.num_epochs: expected 0 or 1, got 2"));
}

TEST(ValidateConfigTest, WarnsAboutFieldsWithoutEffect) {
  const auto config = Good(
      "train_config { startup_delay_steps: 0 batch_queue_capacity: 9 } train_input_reader { "
      "num_readers: 8 include_source_id: true } eval_config { use_dummy_loss_in_eval: true }");
  EXPECT_TRUE(ValidatePipelineConfig(config, {}).ToStatus("").ok());
  EXPECT_THAT(Warnings(config),
              AllOf(HasSubstr("train_config.startup_delay_steps has no effect: "),
                    HasSubstr("train_config.batch_queue_capacity has no effect: "),
                    HasSubstr("train_input_reader.num_readers has no effect: "),
                    HasSubstr("train_input_reader.include_source_id has no effect: "),
                    HasSubstr("eval_config.use_dummy_loss_in_eval has no effect: ")));
}

TEST(ValidateConfigTest, WarnsAboutPaddingThatTheConfigDoesNotAskFor) {
  const std::string resizer = "image_resizer { keep_aspect_ratio_resizer { max_dimension: 640 ";
  config::TrainEvalPipelineConfig config = Good("model { classifier { " + resizer + "} } } }");
  EXPECT_TRUE(ValidatePipelineConfig(config, {}).ToStatus("").ok());
  EXPECT_EQ(Warnings(config),
            "model.classifier.image_resizer.keep_aspect_ratio_resizer.pad_to_max_dimension is "
            "false, but images are padded to 640 x 640 pixels, because the network has one input "
            "size; TensorFlow would give it images of different sizes");
  config = Good("model { classifier { " + resizer + "pad_to_max_dimension: true } } } }");
  EXPECT_EQ(Warnings(config), "");
  *config.mutable_model() = MakeSsdTestConfig("ssd_mobilenet_v2", resizer + "} }").model();
  EXPECT_THAT(Warnings(config), HasSubstr("model.ssd.image_resizer.keep_aspect_ratio_resizer.pad"));
}

TEST(ValidateConfigTest, WarnsAboutAFieldThatTheSchemaHasDropped) {
  config::TrainEvalPipelineConfig config = Good();
  *config.mutable_model() =
      MakeSsdTestConfig("ssd_mobilenet_v2",
                        "num_classes: 10 feature_extractor { batch_norm_trainable: true }")
          .model();
  EXPECT_TRUE(ValidatePipelineConfig(config, {}).ToStatus("").ok());
  EXPECT_THAT(Warnings(config),
              AllOf(HasSubstr("model.ssd.feature_extractor.batch_norm_trainable has no effect: "),
                    HasSubstr("use model.ssd.freeze_batchnorm")));
}

TEST(ValidateConfigTest, AcceptsUnsupportedFieldsAtTheirDefault) {
  const auto config = Good(
      "train_config { fine_tune_checkpoint: '' merge_multiple_label_boxes: false } "
      "train_input_reader { load_multiclass_scores: false }");
  EXPECT_TRUE(ValidatePipelineConfig(config, {}).ToStatus("").ok());
}

TEST(ValidateConfigTest, UnsupportedModelsSayWhatToUseInstead) {
  const std::string problems = Problems(Good("model { faster_rcnn {} }"));
  EXPECT_THAT(problems,
              HasSubstr("has 1 problem:\n  model.faster_rcnn: expected a supported field"));
  EXPECT_THAT(problems, HasSubstr("use model.ssd"));
}

TEST(ValidateConfigTest, ListsAllProblemsOfADetector) {
  auto config = Good();
  *config.mutable_model() =
      MakeSsdTestConfig("ssd_mobilenet_v3",
                        "num_classes: 0 image_resizer { fixed_shape_resizer { height: 8 } } "
                        "matcher { argmax_matcher { unmatched_threshold: 0.9 } } "
                        "anchor_generator { ssd_anchor_generator { num_layers: 5 "
                        "aspect_ratios: -1 } } "
                        "loss { classification_loss { weighted_sigmoid_focal {} } }")
          .model();
  const std::string message = Problems(config);
  for (const char* part :
       {"model.ssd.num_classes: expected a number from 1 to 1000000, got 0",
        "fixed_shape_resizer.height", "feature_extractor.type", "\"ssd_mobilenet_v3\"",
        "unmatched_threshold: expected at most",
        "ssd_anchor_generator.num_layers: expected that of model.ssd.feature_extractor (6)",
        "aspect_ratios", "hard_example_miner: expected none with weighted_sigmoid_focal"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ValidateConfigTest, ChecksSsd) {
  const std::string problems = Problems(Good("model { ssd { num_classes: 3 } }"));
  EXPECT_THAT(problems, HasSubstr("model.ssd.feature_extractor.type: expected"));
  EXPECT_THAT(problems, HasSubstr("model.ssd.loss.classification_loss"));
}

TEST(ValidateConfigTest, DetectorsNeedBoxesAndKnownMetrics) {
  config::TrainEvalPipelineConfig config = Good("eval_config { metrics_set: 'fast' }");
  *config.mutable_model() = MakeSsdTestConfig("ssd_mobilenet_v2").model();
  config.mutable_train_input_reader()->mutable_idx_input_reader()->set_images_path("a");
  const std::string problems(ValidatePipelineConfig(config, {}).ToStatus("x").message());
  EXPECT_THAT(problems, HasSubstr("train_input_reader: expected a reader that gives boxes, got "
                                  "idx_input_reader"));
  EXPECT_THAT(problems, HasSubstr("eval_config.metrics_set: expected "
                                  "\"pascal_voc_detection_metrics\", \"coco_detection_metrics\" "
                                  "or \"oid_V2_detection_metrics\", got \"fast\""));
  for (const char* name : {"oid_V2_detection_metrics", "open_images_V2_detection_metrics"}) {
    config.mutable_eval_config()->set_metrics_set(0, name);
    EXPECT_THAT(Problems(config), Not(HasSubstr("metrics_set"))) << name;
  }
  config.mutable_train_input_reader()->mutable_voc_input_reader()->set_path("a");
  EXPECT_THAT(Problems(config), AllOf(HasSubstr("train_input_reader.voc_input_reader.split: "),
                                      HasSubstr("train_input_reader.label_map_path: ")));
  EXPECT_THAT(Problems(Good("eval_config { metrics_set: 'coco_detection_metrics' }")),
              HasSubstr("none with a classifier"));
}

// Fields as they stand in TensorFlow's sample configs of 2017 and 2018.
TEST(ValidateConfigTest, TensorflowsSampleConfigsHaveNoProblemsButTheirPaths) {
  for (const char* name : {"ssd_mobilenet_v1_pets", "ssd_mobilenet_v2_coco"}) {
    SCOPED_TRACE(name);
    const std::string path = absl::StrCat(PUSHPULL_SOURCE_DIR, "/tests/testdata/", name, ".config");
    const auto sample = LoadPipelineConfig(path);
    ASSERT_TRUE(sample.ok()) << sample.status();
    const ConfigReport report = ValidatePipelineConfig(*sample, {});
    ASSERT_EQ(report.problems.size(), 5u) << report.ToStatus(path);
    for (const ConfigProblem& problem : report.problems) {
      EXPECT_THAT(problem.got, HasSubstr("PATH_TO_BE_CONFIGURED"));
    }
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto with_paths =
        ParsePipelineConfig(absl::StrReplaceAll(text, {{"PATH_TO_BE_CONFIGURED", "/data"}}), path);
    ASSERT_TRUE(with_paths.ok()) << with_paths.status();
    const absl::Status status = ValidatePipelineConfig(*with_paths, {}).ToStatus(path);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GT(BuildVariableLayout(*with_paths).num_trainable_parameters(), 3000000);
  }
}

}  // namespace
}  // namespace pushpull
