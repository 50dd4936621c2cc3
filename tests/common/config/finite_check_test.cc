#include "common/config/finite_check.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/validate_config.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns a valid config of a detector.
config::TrainEvalPipelineConfig ValidDetector() {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig("ssd_mobilenet_v2", "num_classes: 10");
  EXPECT_TRUE(google::protobuf::TextFormat::Parser().MergeFromString(
      "train_config { num_steps: 100 optimizer { adam_optimizer { learning_rate { "
      "constant_learning_rate {} } } } } "
      "train_input_reader { synthetic_input_reader {} } "
      "eval_input_reader { synthetic_input_reader {} }",
      &config));
  return config;
}

std::vector<ConfigProblem> ProblemsOf(const config::TrainEvalPipelineConfig& config) {
  return ValidatePipelineConfig(config, {}).problems;
}

// Expects that the fields of all problems are `fields`, in this order.
void ExpectProblems(const std::string& patch, const std::vector<std::string>& fields) {
  config::TrainEvalPipelineConfig config = ValidDetector();
  ASSERT_TRUE(google::protobuf::TextFormat::Parser().MergeFromString(patch, &config)) << patch;
  std::vector<std::string> found;
  for (const ConfigProblem& problem : ProblemsOf(config)) found.push_back(problem.field);
  EXPECT_EQ(found, fields) << patch;
}

TEST(FiniteCheckTest, RefusesNumbersThatNoOtherCheckLooksAt) {
  ExpectProblems("", {});
  const std::string predictor = "model.ssd.box_predictor.convolutional_box_predictor.";
  ExpectProblems(
      "model { ssd { box_predictor { convolutional_box_predictor { class_prediction_bias_init: inf "
      "conv_hyperparams { initializer { truncated_normal_initializer { mean: nan } } } } } } }",
      {predictor + "conv_hyperparams.initializer.truncated_normal_initializer.mean",
       predictor + "class_prediction_bias_init"});
  ExpectProblems(
      "model { ssd { post_processing { batch_non_max_suppression { score_threshold: nan } } } } "
      "eval_config { min_score_threshold: -inf }",
      {"model.ssd.post_processing.batch_non_max_suppression.score_threshold",
       "eval_config.min_score_threshold"});
  const std::string step = "train_config.data_augmentation_options[0].";
  ExpectProblems(
      "train_config { data_augmentation_options { random_pad_image { pad_color: [1, nan, 3] } } }",
      {step + "random_pad_image.pad_color[1]"});
  ExpectProblems(
      "train_config { data_augmentation_options { ssd_random_crop_pad { operations { max_area: 1 "
      "min_aspect_ratio: 1 max_aspect_ratio: 1 min_padded_size_ratio: [1, 1] "
      "max_padded_size_ratio: [2, 2] pad_color_r: 1e39 } } } }",
      {step + "ssd_random_crop_pad.operations[0].pad_color_r"});
}

TEST(FiniteCheckTest, AddsNothingToAProblemOfTheSameField) {
  ExpectProblems("model { ssd { post_processing { logit_scale: nan } } }",
                 {"model.ssd.post_processing.logit_scale"});
  ExpectProblems(
      "model { ssd { anchor_generator { ssd_anchor_generator { aspect_ratios: inf } } } }",
      {"model.ssd.anchor_generator.ssd_anchor_generator.aspect_ratios"});
}

TEST(FiniteCheckTest, LeavesOutFieldsWithoutEffect) {
  ExpectProblems("train_config { startup_delay_steps: nan }", {});
}

// Sets each number of the schema to NaN, in a config that is valid but for the messages that are
// added on the way to the number.
class EachNumber {
 public:
  int count() const { return count_; }

  // `fields` leads to messages of the type `descriptor`, which lie at `path`.
  void Visit(const Descriptor& descriptor, const std::vector<const FieldDescriptor*>& fields,
             const std::string& path) {
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor* const field = descriptor.field(i);
      if (field->options().HasExtension(config::no_effect)) continue;
      std::vector<const FieldDescriptor*> longer = fields;
      longer.push_back(field);
      const std::string name = absl::StrCat(path, field->name());
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Visit(*field->message_type(), longer,
              absl::StrCat(name, field->is_repeated() ? "[0]." : "."));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
        ExpectRefused(longer, name);
      } else {
        EXPECT_NE(field->cpp_type(), FieldDescriptor::CPPTYPE_DOUBLE) << "set it here too";
      }
    }
  }

 private:
  void ExpectRefused(const std::vector<const FieldDescriptor*>& fields, const std::string& path) {
    ++count_;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    config::TrainEvalPipelineConfig config = ValidDetector();
    Message* message = &config;
    for (const FieldDescriptor* field : fields) {
      const Reflection& reflection = *message->GetReflection();
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT && field->is_repeated()) {
        reflection.ClearField(message, field);
        reflection.AddFloat(message, field, kNan);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
        reflection.SetFloat(message, field, kNan);
      } else if (!field->is_repeated()) {
        message = reflection.MutableMessage(message, field);
      } else if (reflection.FieldSize(*message, field) == 0) {
        message = reflection.AddMessage(message, field);
      } else {
        message = reflection.MutableRepeatedMessage(message, field, 0);
      }
    }
    bool refused = false;
    for (const ConfigProblem& problem : ProblemsOf(config)) {
      refused = refused || problem.field == path || problem.field == path + "[0]";
    }
    EXPECT_TRUE(refused) << path;
  }

  int count_ = 0;
};

TEST(FiniteCheckTest, RefusesNanInEachFieldOfTheSchema) {
  EachNumber numbers;
  numbers.Visit(*config::TrainEvalPipelineConfig::descriptor(), {}, "");
  EXPECT_GT(numbers.count(), 100);
}

}  // namespace
}  // namespace pushpull
