#include "common/config/external_checks.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/pipeline_config.h"
#include "common/config/validate_config.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGood[] = R"(
  model { external { name: "toy" } }
  train_config {
    num_steps: 100
    optimizer { adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
  }
)";

// Returns the problems of kGood with `patch` merged over it.
std::string ExternalProblems(const std::string& patch, bool external_models = true) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGood, &config));
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(patch, &config)) << patch;
  ConfigContext context;
  context.external_models = external_models;
  return std::string(ValidatePipelineConfig(config, context).ToStatus("job.config").message());
}

TEST(ExternalChecksTest, NeedsAnOptimizerOnly) {
  EXPECT_EQ(ExternalProblems(""), "");
  EXPECT_EQ(ExternalProblems("train_input_reader { num_epochs: 3 }"), "");
  EXPECT_EQ(
      ExternalProblems("train_config { freeze_variables: 'encoder' bias_grad_multiplier: 2 }"), "");
}

TEST(ExternalChecksTest, RefusesWhatTheServerCannotUse) {
  const auto expect = [](const std::string& patch, const std::string& field) {
    EXPECT_THAT(ExternalProblems(patch),
                AllOf(HasSubstr("1 problem"), HasSubstr(field + ": expected ")));
  };
  expect("train_input_reader { synthetic_input_reader {} }",
         "train_input_reader.synthetic_input_reader");
  expect("train_input_reader { label_map_path: 'x' }", "train_input_reader.label_map_path");
  expect("train_config { data_augmentation_options { random_horizontal_flip {} } }",
         "train_config.data_augmentation_options");
  expect("train_config { fine_tune_checkpoint: 'x' }", "train_config.fine_tune_checkpoint");
  expect("eval_input_reader { synthetic_input_reader {} }", "eval_input_reader[0]");
  expect("eval_config { batch_size: 3 }", "eval_config");
  expect("model { external { name: 'a\\nb' } }", "model.external.name");
  expect("model { external { name: '" + std::string(201, 'n') + "' } }", "model.external.name");
}

TEST(ExternalChecksTest, TheChecksOfOtherFieldsRemain) {
  EXPECT_THAT(ExternalProblems("train_config { batch_size: 0 }"),
              HasSubstr("train_config.batch_size"));
  EXPECT_THAT(ExternalProblems("train_config { freeze_variables: '(' }"),
              HasSubstr("train_config.freeze_variables[0]"));
}

TEST(ExternalChecksTest, AProgramThatHasToKnowTheNetworkSaysSo) {
  const std::string problems = ExternalProblems("train_config { batch_size: 0 }", false);
  EXPECT_THAT(problems, AllOf(HasSubstr("external { name: \"toy\" }"), HasSubstr("client library"),
                              Not(HasSubstr("batch_size"))))
      << "one sentence, whatever else is wrong";
}

TEST(ExternalChecksTest, TheEffectiveConfigIsValid) {
  config::TrainEvalPipelineConfig config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kGood, &config));
  ConfigContext context;
  context.external_models = true;
  for (const uint32_t num_epochs : {0u, 3u}) {
    if (num_epochs > 0) config.mutable_train_input_reader()->set_num_epochs(num_epochs);
    const auto again = ParseValidConfig(EffectiveConfigText(config), context, "effective");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->train_input_reader().num_epochs(), num_epochs);
  }
}

}  // namespace
}  // namespace pushpull
