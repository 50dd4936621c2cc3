#include "common/config/pipeline_config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ParseError(const std::string& text) {
  const auto config = ParsePipelineConfig(text, "job.config");
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(PipelineConfigTest, UnknownFieldNamesPlaceFieldAndNearestName) {
  const std::string error = ParseError("model {}\ntrain_config {\n  batch_sise: 3\n}\n");
  EXPECT_THAT(
      error,
      HasSubstr("job.config:3:3: in train_config: unknown field \"batch_sise\" in TrainConfig"));
  EXPECT_THAT(error, HasSubstr("did you mean \"batch_size\"?"));
}

TEST(PipelineConfigTest, AllUnknownFieldsAreListedAtOnce) {
  const std::string error = ParseError(
      "train_config {\n  optimizer {\n    adam_optimiser { epsilon: 1 }\n  }\n  num_stepz: 3\n}\n"
      "evil_config { x: 1 }\n");
  EXPECT_THAT(
      error,
      HasSubstr("job.config:3:5: in train_config.optimizer: unknown field \"adam_optimiser\""));
  EXPECT_THAT(error, HasSubstr("job.config:5:3: in train_config: unknown field \"num_stepz\""));
  EXPECT_THAT(error, HasSubstr("job.config:7:1: unknown field \"evil_config\""));
  EXPECT_THAT(error, HasSubstr("\"eval_config\""));
}

TEST(PipelineConfigTest, ExtensionsAreUnknown) {
  EXPECT_THAT(ParseError("train_config { [foo.bar]: 3 }"),
              HasSubstr("in train_config: unknown extension \"foo.bar\" in TrainConfig"));
  const std::string error = ParseError("model {}\n[my.ext] { batch_size: 7 }\n[x]: [1, 2]\n");
  EXPECT_THAT(error, HasSubstr("job.config:2:"));
  EXPECT_THAT(error, HasSubstr("unknown extension \"my.ext\" in TrainEvalPipelineConfig"));
  EXPECT_THAT(error, HasSubstr("job.config:3:2: unknown extension \"x\""));
  const auto unsupported = ParsePipelineConfig(
      "train_input_reader { external_input_reader { [my.reader] { path: 'x' } } }", "job.config");
  EXPECT_TRUE(unsupported.ok()) << unsupported.status();
}

TEST(PipelineConfigTest, UnknownFieldsInListsAreFound) {
  const std::string error = ParseError(
      "train_config { data_augmentation_options: [{ random_shift { max_pixels: 1 } },\n"
      "{ random_shyft {} }] }");
  EXPECT_THAT(error, HasSubstr("job.config:2:3: in train_config.data_augmentation_options: unknown "
                               "field \"random_shyft\" in PreprocessingStep"));
}

std::string Repeated(const std::string& piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

// Each of these inputs once overflowed the parser's stack.
TEST(PipelineConfigTest, NestingIsBounded) {
  for (const char* piece : {"{", "model {", "model <", "model { x: [", "x: [", "x {", "x <"}) {
    EXPECT_THAT(ParseError(Repeated(piece, 30000)), HasSubstr("nested more than 100 deep"))
        << piece;
  }
  EXPECT_THAT(ParseError("\n model { faster_rcnn { " + Repeated("a { ", 200) + Repeated("} ", 202)),
              HasSubstr("job.config:2:"));
  const auto config = ParsePipelineConfig(
      "model { faster_rcnn { " + Repeated("a { ", 90) + Repeated("} ", 92), "job.config");
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(PipelineConfigTest, BracesInStringsAndCommentsAreNotNesting) {
  const std::string braces = Repeated("{<[", 1000);
  const auto config = ParsePipelineConfig(
      "# " + braces + "\ntrain_config { freeze_variables: '" + braces + "\\'" + braces + "' }",
      "job.config");
  EXPECT_TRUE(config.ok()) << config.status();
  // The tokenizer ends a string at the end of the line, even after a backslash.
  EXPECT_THAT(ParseError("train_config { freeze_variables: 'x\\\n" + Repeated("{", 1000)),
              HasSubstr("nested more than 100 deep"));
}

TEST(PipelineConfigTest, ListsOnlyTheFirstHundredProblems) {
  const std::string error = ParseError(Repeated("x: 1\n", 60000));
  EXPECT_THAT(error, HasSubstr("job.config:1:1: unknown field \"x\""));
  EXPECT_THAT(error, HasSubstr("job.config:100:1: unknown field \"x\""));
  EXPECT_THAT(error, Not(HasSubstr("job.config:101:1")));
  EXPECT_TRUE(absl::EndsWith(error, "\n  and 59900 more")) << error.substr(error.size() - 100);
  EXPECT_THAT(ParseError(Repeated("x: 1\n", 100)), Not(HasSubstr("more")));
}

// Comparing every candidate with the whole name would take tens of seconds and hundreds of
// megabytes.
TEST(PipelineConfigTest, ShortensLongNamesInMessages) {
  const std::string error = ParseError(std::string(900000, 'x') + ": 1");
  EXPECT_THAT(error, HasSubstr("xxx... (900000 bytes)"));
  EXPECT_LT(error.size(), 1000u);
}

TEST(PipelineConfigTest, TheSizeIsBounded) {
  EXPECT_TRUE(ParsePipelineConfig(std::string(1 << 20, '\n'), "job.config").ok());
  EXPECT_THAT(ParseError(std::string((1 << 20) + 1, '\n')), HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(std::string(LoadPipelineConfig("/dev/zero").status().message()),
              HasSubstr("at most 1048576 bytes"));
}

TEST(PipelineConfigTest, APipeNeedsAWriter) {
  const TestFolder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(LoadPipelineConfig(path).status().message()),
              HasSubstr("/pipe is empty, or a pipe that nobody writes to"));
  std::thread writer([&path] {  // opens the pipe after the reader, and writes in two pieces
    ::usleep(100'000);
    std::ofstream pipe(path);
    pipe << "train_config { num_steps: " << std::flush;
    ::usleep(100'000);
    pipe << "3 }";
  });
  const auto config = LoadPipelineConfig(path);
  writer.join();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train_config().num_steps(), 3);
}

TEST(PipelineConfigTest, RefusesZeroBytes) {
  EXPECT_THAT(ParseError(std::string("model {}\0", 9)), HasSubstr("a zero byte at offset 8"));
  EXPECT_THAT(ParseError(std::string("\xff\xfem\0", 4)), HasSubstr("save it as UTF-8"));
}

TEST(PipelineConfigTest, AByteOrderMarkIsNoPartOfTheText) {
  const auto config =
      ParsePipelineConfig("\xef\xbb\xbftrain_config { num_steps: 3 }", "job.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train_config().num_steps(), 3);
  EXPECT_THAT(ParseError("\xef\xbb\xbftrain { }"), HasSubstr("job.config:1:1: unknown field"));
}

TEST(PipelineConfigTest, NoSuggestionWhenNothingIsNear) {
  const std::string error = ParseError("train_config { zzzzzz: 3 }");
  EXPECT_THAT(error, HasSubstr("unknown field \"zzzzzz\""));
  EXPECT_THAT(error, Not(HasSubstr("did you mean")));
}

TEST(PipelineConfigTest, SyntaxErrorsNameThePlaceAndTheField) {
  EXPECT_THAT(ParseError("train_config {\n  batch_size: many\n}"),
              HasSubstr("job.config:2:15: in train_config.batch_size: Expected integer"));
  EXPECT_THAT(ParseError("train_config {\n  num_steps: 3\n"),
              AllOf(HasSubstr("job.config:3:1: in train_config: Expected"),
                    HasSubstr("the end of the text")));
  EXPECT_THAT(ParseError("train_config { num_steps"),
              AllOf(HasSubstr("job.config:1:25: "), HasSubstr("found the end of the text")));
  EXPECT_THAT(ParseError("train_config { num_steps: -3 }"),
              HasSubstr("in train_config.num_steps: "));
  EXPECT_THAT(ParseError("train_config { num_steps: 3 num_steps: 4 }"),
              HasSubstr("specified multiple times"));
}

TEST(PipelineConfigTest, UnknownEnumValueListsTheValidValues) {
  EXPECT_THAT(
      ParseError(
          "model { classifier { feature_extractor { conv_hyperparams { activation: RELU_7 } } } }"),
      HasSubstr("one of NONE, RELU, RELU_6"));
}

TEST(PipelineConfigTest, CommentsAndStringsDoNotShiftTheReportedPlace) {
  const std::string error = ParseError(
      "# train_config {\ntrain_input_reader { idx_input_reader { images_path: 'a{b}\\'{' } }\nx: "
      "1\n");
  EXPECT_THAT(error, HasSubstr("job.config:3:1: unknown field \"x\""));
}

TEST(PipelineConfigTest, DoesNotCallContentsOfUnsupportedMessagesUnknown) {
  const auto config = ParsePipelineConfig(
      "model { faster_rcnn { first_stage_stride: 16 nested { a: [1, 2] } } }", "job.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->model().has_faster_rcnn());
}

TEST(PipelineConfigTest, MissingFileIsNotFoundAndNamed) {
  const auto config = LoadPipelineConfig("/nonexistent/job.config");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nonexistent/job.config"));
  EXPECT_EQ(LoadPipelineConfig("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadPipelineConfig(testing::TempDir()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PipelineConfigTest, AFileThatCannotBeReadNamesTheReason) {
  const TestFolder folder;
  const std::string link = folder.path() + "/loop.config";
  std::filesystem::create_symlink(link, link);
  const absl::Status loop = LoadPipelineConfig(link).status();
  EXPECT_TRUE(absl::IsInvalidArgument(loop)) << loop;
  EXPECT_EQ(loop.message(),
            "pipeline config " + link + " cannot be read: Too many levels of symbolic links");
  EXPECT_THAT(std::string(LoadPipelineConfig(folder.path()).status().message()),
              HasSubstr("cannot be read: Is a directory"));
  // Address 0 is not mapped, so Linux answers a read at the beginning of this file with EIO, as for
  // a broken disk.
  const absl::Status broken = LoadPipelineConfig("/proc/self/mem").status();
  EXPECT_TRUE(absl::IsInternal(broken)) << broken;
  EXPECT_TRUE(IsPassing(broken)) << broken;
  EXPECT_EQ(broken.message(), "pipeline config /proc/self/mem cannot be read: Input/output error");
}

TEST(PipelineConfigTest, AFileThatMayNotBeReadSaysSo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const TestFolder folder;
  const std::string path = folder.Write("private.config", "model {}");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const absl::Status status = LoadPipelineConfig(path).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(status.message(), "pipeline config " + path + " cannot be read: Permission denied");
}

TEST(PipelineConfigTest, ReadsAnEmptyFileAsAnEmptyConfig) {
  const auto config = ParsePipelineConfig("", "job.config");
  ASSERT_TRUE(config.ok()) << config.status();
}

// The pipeline config of the model zoo's ssd_mobilenet_v2 has these fields. The schema has to know
// all of them, even those that are not supported.
constexpr char kTensorFlowConfig[] = R"(
model {
  ssd {
    num_classes: 90
    box_coder { faster_rcnn_box_coder { y_scale: 10.0 x_scale: 10.0 height_scale: 5.0 width_scale: 5.0 } }
    matcher {
      argmax_matcher {
        matched_threshold: 0.5 unmatched_threshold: 0.5 ignore_thresholds: false
        negatives_lower_than_unmatched: true force_match_for_each_row: true
      }
    }
    similarity_calculator { iou_similarity { } }
    anchor_generator {
      ssd_anchor_generator { num_layers: 6 min_scale: 0.2 max_scale: 0.95 aspect_ratios: 1.0 aspect_ratios: 2.0 }
    }
    image_resizer { fixed_shape_resizer { height: 300 width: 300 } }
    box_predictor {
      convolutional_box_predictor {
        min_depth: 0 max_depth: 0 num_layers_before_predictor: 0 use_dropout: false dropout_keep_probability: 0.8
        kernel_size: 3 box_code_size: 4 apply_sigmoid_to_scores: false
        conv_hyperparams {
          activation: RELU_6,
          regularizer { l2_regularizer { weight: 0.00004 } }
          initializer { truncated_normal_initializer { stddev: 0.03 mean: 0.0 } }
          batch_norm { train: true, scale: true, center: true, decay: 0.9997, epsilon: 0.001 }
        }
      }
    }
    feature_extractor {
      type: 'ssd_mobilenet_v2' min_depth: 16 depth_multiplier: 1.0 batch_norm_trainable: true use_depthwise: true
    }
    loss {
      classification_loss { weighted_sigmoid { } }
      localization_loss { weighted_smooth_l1 { } }
      hard_example_miner {
        num_hard_examples: 3000 iou_threshold: 0.99 loss_type: CLASSIFICATION max_negatives_per_positive: 3
        min_negatives_per_image: 3
      }
      classification_weight: 1.0 localization_weight: 1.0
    }
    normalize_loss_by_num_matches: true
    post_processing {
      batch_non_max_suppression {
        score_threshold: 1e-8 iou_threshold: 0.6 max_detections_per_class: 100 max_total_detections: 100
      }
      score_converter: SIGMOID
    }
  }
}
train_config: {
  batch_size: 24
  optimizer {
    rms_prop_optimizer: {
      learning_rate: {
        exponential_decay_learning_rate { initial_learning_rate: 0.004 decay_steps: 800720 decay_factor: 0.95 }
      }
      momentum_optimizer_value: 0.9 decay: 0.9 epsilon: 1.0
    }
  }
  fine_tune_checkpoint: "PATH_TO_BE_CONFIGURED/model.ckpt"
  fine_tune_checkpoint_type: "detection"
  num_steps: 200000
  data_augmentation_options { random_horizontal_flip { } }
  data_augmentation_options { ssd_random_crop { } }
}
train_input_reader: {
  tf_record_input_reader { input_path: "PATH_TO_BE_CONFIGURED/mscoco_train.record-?????-of-00100" }
  label_map_path: "PATH_TO_BE_CONFIGURED/mscoco_label_map.pbtxt"
}
eval_config: { num_examples: 8000 max_evals: 10 }
eval_input_reader: {
  tf_record_input_reader { input_path: "PATH_TO_BE_CONFIGURED/mscoco_val.record" }
  label_map_path: "PATH_TO_BE_CONFIGURED/mscoco_label_map.pbtxt"
  shuffle: false num_readers: 1
}
)";

TEST(PipelineConfigTest, ParsesTensorFlowsFilesUnchanged) {
  const auto config = ParsePipelineConfig(kTensorFlowConfig, "ssd.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model().ssd().num_classes(), 90);
  EXPECT_EQ(config->train_config().batch_size(), 24u);
  EXPECT_TRUE(config->train_config().optimizer().use_moving_average());
}

// Fields with the types that TensorFlow's schema has, with the values that its configs give them.
TEST(PipelineConfigTest, ParsesTensorFlowsEnumsAndSizes) {
  const auto config = ParsePipelineConfig(
      "model { ssd { loss { expected_loss_weights: NONE } } }\n"
      "train_input_reader { mask_type: PNG_MASKS num_prefetch_batches: -1 max_number_of_boxes: 100 "
      "num_additional_channels: 0 }\n"
      "eval_input_reader { mask_type: NUMERICAL_MASKS }\n",
      "ssd.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train_input_reader().mask_type(), config::InputReader::PNG_MASKS);
  EXPECT_EQ(config->train_input_reader().num_prefetch_batches(), -1);
}

// What is in a message that is not built is skipped, whatever its form.
TEST(PipelineConfigTest, ParsesTensorFlowsFieldsThatAreNotBuilt) {
  const auto config = ParsePipelineConfig(
      "model { ssd { image_resizer { conditional_shape_resizer { condition: GREATER } }\n"
      "  feature_extractor { bifpn { num_iterations: 3 combine_method: 'sum' } } } }\n"
      "train_config { keep_checkpoint_every_n_hours: 1000.0\n"
      "  data_augmentation_options { autoaugment_image { policy_name: 'v1' } } }\n"
      "train_input_reader { include_source_id: true sample_from_datasets_weights: [0.25, 0.75]\n"
      "  keypoint_type_weight: 1.0 keypoint_type_weight: 2.0 frame_index: -1 }\n"
      "eval_config { super_categories { key: 'VEHICLE' value: 'car,bus' }\n"
      "  super_categories { key: 'PET' value: 'cat' }\n"
      "  parameterized_metric { coco_keypoint_metrics { keypoint_label_to_sigmas { key: 'nose' "
      "value: 0.1 } } }\n"
      "  keypoint_edge { start: 0 end: 1 } }\n",
      "ssd.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->train_config().keep_checkpoint_every_n_hours(), 1000.0f);
  EXPECT_EQ(config->eval_config().super_categories_size(), 2);
}

TEST(PipelineConfigTest, EffectiveConfigWritesDefaultsAndMeansTheSame) {
  const auto config = ParsePipelineConfig(
      "train_config { num_steps: 7 num_batch_queue_threads: 4 optimizer { adam_optimizer {} } }",
      "job.config");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string text = EffectiveConfigText(*config);
  EXPECT_THAT(text, HasSubstr("num_steps: 7"));
  EXPECT_THAT(text, HasSubstr("batch_size: 32"));
  EXPECT_THAT(text, HasSubstr("use_moving_average: true"));
  EXPECT_THAT(text, HasSubstr("eval_interval_secs: 300"));
  EXPECT_THAT(text, Not(HasSubstr("num_batch_queue_threads")));
  EXPECT_THAT(text, Not(HasSubstr("momentum_optimizer_value")));
  const auto again = ParsePipelineConfig(text, "effective");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(EffectiveConfigText(*again), text);
}

}  // namespace
}  // namespace pushpull
