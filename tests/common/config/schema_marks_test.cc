// The checks of enums, and the warning of a field without effect; validate_config_test.cc has the
// checks of the other fields.
#include "common/config/schema_marks.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

// Returns the problems of the marks in a config that sets these fields, one per line.
std::string MarkProblems(const std::string& text) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  FieldChecker checker;
  std::vector<std::string> warnings;
  CheckSchemaMarks(config, &checker, &warnings);
  return absl::StrJoin(checker.problems(), "\n", [](std::string* out, const auto& problem) {
    out->append(ToString(problem));
  });
}

TEST(SchemaMarksTest, AcceptsUnsupportedEnumsAtTheirDefault) {
  for (const char* text :
       {"model { ssd { loss { expected_loss_weights: NONE } } }",
        "model { ssd { box_predictor { weight_shared_convolutional_box_predictor { "
        "score_converter: IDENTITY } } } }",
        "train_input_reader { mask_type: NUMERICAL_MASKS }",
        "train_input_reader { input_type: INPUT_DEFAULT }",
        "train_input_reader { mask_type: DEFAULT }"}) {
    EXPECT_EQ(MarkProblems(text), "") << text;
  }
}

TEST(SchemaMarksTest, RefusesOtherValuesOfUnsupportedEnums) {
  EXPECT_EQ(MarkProblems("model { ssd { loss { expected_loss_weights: EXPECTED_SAMPLING } } }"),
            "model.ssd.loss.expected_loss_weights: expected a supported field, got "
            "\"expected_loss_weights\", which is known but not supported; remove it");
  EXPECT_EQ(MarkProblems("train_input_reader { mask_type: PNG_MASKS }"),
            "train_input_reader.mask_type: expected a supported value, got PNG_MASKS, which is "
            "known but not supported; boxes only; remove it");
  EXPECT_EQ(MarkProblems("train_input_reader { input_type: TF_SEQUENCE_EXAMPLE }"),
            "train_input_reader.input_type: expected a supported value, got TF_SEQUENCE_EXAMPLE, "
            "which is known but not supported; write the data with one tf.Example for each image");
  EXPECT_EQ(MarkProblems("model { ssd { box_predictor { weight_shared_convolutional_box_predictor "
                         "{ score_converter: SIGMOID } } } }"),
            "model.ssd.box_predictor.weight_shared_convolutional_box_predictor.score_converter: "
            "expected a supported field, got \"score_converter\", which is known but not "
            "supported; use post_processing.score_converter");
}

TEST(SchemaMarksTest, WarnsOfAFieldWithoutEffect) {
  config::TrainEvalPipelineConfig config;
  config.mutable_train_input_reader()->set_use_display_name(true);
  FieldChecker checker;
  std::vector<std::string> warnings;
  CheckSchemaMarks(config, &checker, &warnings);
  EXPECT_TRUE(checker.problems().empty());
  EXPECT_EQ(warnings, (std::vector<std::string>{
                          "train_input_reader.use_display_name has no effect: a class is found by "
                          "its name and by its display_name"}));
}

TEST(SchemaMarksTest, AcceptsThatConvHyperparamsHoldForAllLayersOfAPredictor) {
  config::TrainEvalPipelineConfig config;
  auto* const predictor = config.mutable_model()
                              ->mutable_ssd()
                              ->mutable_box_predictor()
                              ->mutable_weight_shared_convolutional_box_predictor();
  predictor->set_apply_conv_hyperparams_to_heads(true);
  predictor->set_apply_conv_hyperparams_pointwise(true);
  FieldChecker checker;
  std::vector<std::string> warnings;
  CheckSchemaMarks(config, &checker, &warnings);
  EXPECT_TRUE(checker.problems().empty());
  const std::string field =
      "model.ssd.box_predictor.weight_shared_convolutional_box_predictor.apply_conv_hyperparams_";
  const std::string reason =
      " has no effect: conv_hyperparams hold for all layers of the predictor, as with true";
  EXPECT_EQ(warnings,
            (std::vector<std::string>{field + "to_heads" + reason, field + "pointwise" + reason}));
}

}  // namespace
}  // namespace pushpull
