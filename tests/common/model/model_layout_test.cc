#include "common/model/model_layout.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

config::TrainEvalPipelineConfig MakeConfig(const std::string& train_config) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(model {
             classifier {
               num_classes: 10
               image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
               feature_extractor { type: "mobilenet_v2" }
             }
           }
           train_config {)pb" +
          train_config + "}",
      &config));
  return config;
}

const VariableSpec& Get(const VariableLayout& layout, const std::string& name) {
  const std::optional<int64_t> i = layout.Find(name);
  EXPECT_TRUE(i.has_value()) << name;
  return layout.variables()[i.value_or(0)];
}

TEST(BuildVariableLayoutTest, RegularisesWeightsButNotDepthwiseWeightsBiasesOrBatchNorm) {
  const VariableLayout layout = BuildVariableLayout(MakeConfig(""));
  EXPECT_EQ(Get(layout, "MobilenetV2/Conv/weights").l2_weight, 4e-5f);
  EXPECT_EQ(Get(layout, "MobilenetV2/Logits/Conv2d_1c_1x1/weights").l2_weight, 4e-5f);
  for (const char* name :
       {"MobilenetV2/expanded_conv/depthwise/depthwise_weights", "MobilenetV2/Conv/BatchNorm/gamma",
        "MobilenetV2/Conv/BatchNorm/moving_mean", "MobilenetV2/Logits/Conv2d_1c_1x1/biases"}) {
    EXPECT_EQ(Get(layout, name).l2_weight, 0.0f) << name;
  }
}

TEST(BuildVariableLayoutTest, AddRegularizationLossFalseRemovesAllL2) {
  const VariableLayout layout = BuildVariableLayout(MakeConfig("add_regularization_loss: false"));
  for (const VariableSpec& variable : layout.variables()) EXPECT_EQ(variable.l2_weight, 0.0f);
}

TEST(BuildVariableLayoutTest, BiasMultiplierReachesBiasesOnly) {
  const VariableLayout layout = BuildVariableLayout(MakeConfig("bias_grad_multiplier: 2"));
  int scaled = 0;
  for (const VariableSpec& variable : layout.variables()) {
    if (variable.gradient_multiplier != 1.0f) ++scaled;
    EXPECT_EQ(variable.learning_rate_multiplier, 1.0f) << variable.name;
  }
  EXPECT_EQ(scaled, 1);
  EXPECT_EQ(Get(layout, "MobilenetV2/Logits/Conv2d_1c_1x1/biases").gradient_multiplier, 2.0f);
}

TEST(BuildVariableLayoutTest, FreezePatternsMatchFromTheStartOfTheName) {
  const VariableLayout layout = BuildVariableLayout(
      MakeConfig("freeze_variables: 'MobilenetV2/Conv/' freeze_variables: 'expanded_conv'"));
  EXPECT_TRUE(Get(layout, "MobilenetV2/Conv/weights").frozen);
  EXPECT_TRUE(Get(layout, "MobilenetV2/Conv/BatchNorm/gamma").frozen);
  // Frozen layers keep updating their moving statistics, as TensorFlow's update operations do.
  EXPECT_FALSE(Get(layout, "MobilenetV2/Conv/BatchNorm/moving_mean").frozen);
  EXPECT_FALSE(Get(layout, "MobilenetV2/Conv_1/weights").frozen);
  // "expanded_conv" occurs only inside of names, so it freezes nothing.
  EXPECT_FALSE(Get(layout, "MobilenetV2/expanded_conv/project/weights").frozen);
}

TEST(BuildVariableLayoutTest, APatternThatOccursOnlyWithinNamesIsNamedWithAWayOut) {
  const WarningSink sink;
  BuildVariableLayout(
      MakeConfig("freeze_variables: 'MobilenetV2/Conv/' freeze_variables: 'expanded_conv' "
                 "freeze_variables: 'ResNet' update_trainable_variables: 'biases|gamma'"));
  const std::string name = "MobilenetV2/expanded_conv/depthwise/depthwise_weights";
  EXPECT_THAT(
      sink.warnings(),
      ElementsAre(
          AllOf(HasSubstr("train_config.update_trainable_variables[0] \"biases|gamma\""),
                HasSubstr("write \".*(biases|gamma)\" to match there too")),
          AllOf(HasSubstr("train_config.freeze_variables[1] \"expanded_conv\" matches no trainable "
                          "variable at the start of its name, but occurs within " +
                          name),
                HasSubstr("write \".*expanded_conv\" to match there too")),
          AllOf(HasSubstr(
                    "train_config.freeze_variables[2] \"ResNet\" matches no trainable variable"),
                Not(HasSubstr("occurs within"))),
          HasSubstr("nothing is left to train")));
}

TEST(BuildVariableLayoutTest, UpdateListFreezesTheRestAndFreezeListWins) {
  const VariableLayout layout = BuildVariableLayout(
      MakeConfig("update_trainable_variables: '.*/Logits/' freeze_variables: '.*/biases'"));
  for (const VariableSpec& variable : layout.variables()) {
    if (variable.kind != VariableKind::kTrainable) continue;
    EXPECT_EQ(variable.frozen, variable.name != "MobilenetV2/Logits/Conv2d_1c_1x1/weights")
        << variable.name;
  }
}

TEST(BuildVariableLayoutTest, FrozenBatchNormFreezesMovingStatisticsOnly) {
  config::TrainEvalPipelineConfig config = MakeConfig("");
  config.mutable_model()->mutable_classifier()->set_freeze_batchnorm(true);
  const VariableLayout layout = BuildVariableLayout(config);
  for (const VariableSpec& variable : layout.variables()) {
    EXPECT_EQ(variable.frozen, variable.kind == VariableKind::kMovingStatistic) << variable.name;
  }
  // Freezing does not move any variable in the flat vector.
  EXPECT_EQ(layout.signature(), BuildVariableLayout(MakeConfig("")).signature());
}

TEST(BuildExternalLayoutTest, AppliesTrainConfigToDeclaredVariables) {
  std::vector<VariableSpec> variables(4);
  variables[0].name = "encoder/weight";
  variables[0].shape = {3};
  variables[0].l2_weight = 0.5f;
  variables[0].learning_rate_multiplier = 0.1f;
  variables[1].name = "decoder/biases";
  variables[2].name = "decoder/embedding";
  variables[2].frozen = true;
  variables[3].name = "encoder/running_mean";
  variables[3].kind = VariableKind::kMovingStatistic;
  const VariableLayout declared = *VariableLayout::Create(variables);
  const auto build = [&declared](const std::string& train_config) {
    return BuildExternalLayout(MakeConfig(train_config).train_config(), declared);
  };
  const VariableLayout plain = build("");
  EXPECT_EQ(plain.signature(), declared.signature());
  EXPECT_EQ(Get(plain, "encoder/weight").l2_weight, 0.5f);
  EXPECT_EQ(Get(plain, "encoder/weight").learning_rate_multiplier, 0.1f);
  EXPECT_FALSE(Get(plain, "encoder/weight").frozen);
  EXPECT_TRUE(Get(plain, "decoder/embedding").frozen) << "as declared";

  const VariableLayout changed =
      build("add_regularization_loss: false bias_grad_multiplier: 2 freeze_variables: 'encoder'");
  EXPECT_EQ(Get(changed, "encoder/weight").l2_weight, 0.0f);
  EXPECT_TRUE(Get(changed, "encoder/weight").frozen);
  EXPECT_FALSE(Get(changed, "encoder/running_mean").frozen) << "patterns are for trainable ones";
  EXPECT_EQ(Get(changed, "decoder/biases").gradient_multiplier, 2.0f);
  EXPECT_EQ(Get(changed, "encoder/weight").learning_rate_multiplier, 0.1f);
  EXPECT_FALSE(Get(changed, "decoder/biases").frozen);
  EXPECT_TRUE(Get(changed, "decoder/embedding").frozen);
}

TEST(BuildExternalLayoutTest, WarnsOfABiasMultiplierThatFindsNoBiases) {
  std::vector<VariableSpec> variables(1);
  variables[0].name = "layer.bias";
  const auto warnings = [&](const std::string& train_config) {
    const WarningSink sink;
    BuildExternalLayout(MakeConfig(train_config).train_config(),
                        *VariableLayout::Create(variables));
    return sink.warnings();
  };
  EXPECT_THAT(warnings("bias_grad_multiplier: 2"),
              ElementsAre(HasSubstr("train_config.bias_grad_multiplier has no effect")));
  EXPECT_THAT(warnings(""), IsEmpty());
  variables[0].name = "layer/biases";
  EXPECT_THAT(warnings("bias_grad_multiplier: 2"), IsEmpty());
}

TEST(BuildExternalLayoutTest, WarnsIfNothingIsLeftToTrain) {
  std::vector<VariableSpec> variables(2);
  variables[0].name = "a";
  variables[0].frozen = true;
  variables[1].name = "b";
  const WarningSink sink;
  const auto build = [&](const std::string& train_config) {
    BuildExternalLayout(MakeConfig(train_config).train_config(),
                        *VariableLayout::Create(variables));
  };
  build("freeze_variables: 'a'");
  EXPECT_THAT(sink.warnings(), IsEmpty());
  build("freeze_variables: '.*'");
  EXPECT_THAT(sink.warnings(),
              ElementsAre(HasSubstr("nothing is left to train: all 2 trainable variables")));
}

}  // namespace
}  // namespace pushpull
