#include "common/config/effect_warnings.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/validate_config.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> EffectsOf(const std::string& text, bool sync = true) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  std::vector<std::string> warnings;
  WarnAboutEffects(config, sync, &warnings);
  return warnings;
}

TEST(EffectWarningsTest, AClassifierHasNoBoxes) {
  for (const char* field :
       {"num_visualizations: 3", "export_path: 'x'", "min_score_threshold: 0.1",
        "max_num_boxes_to_visualize: 2", "include_metrics_per_category: true"}) {
    const std::string eval = absl::StrCat(" eval_config { ", field, " }");
    const std::string name = std::string(field).substr(0, std::string(field).find(':'));
    EXPECT_THAT(
        EffectsOf("model { classifier {} }" + eval),
        ElementsAre(absl::StrCat("eval_config.", name, " has no effect with a classifier")));
    EXPECT_THAT(EffectsOf("model { ssd {} }" + eval), IsEmpty());
  }
  EXPECT_THAT(EffectsOf("model { classifier {} } eval_config { num_visualizations: 0 }"),
              IsEmpty());
  EXPECT_THAT(EffectsOf("model { classifier {} } eval_config { num_visualizations: 10 }"),
              IsEmpty())
      << "the default, which the effective config writes out";
}

TEST(EffectWarningsTest, AnEvaluationThatDrawsNothingHasNoBoxesToChoose) {
  const auto effects = [](const std::string& eval) {
    return EffectsOf("model { ssd {} } eval_config { " + eval + " }");
  };
  const std::string asks = " min_score_threshold: 0.1 max_num_boxes_to_visualize: 2";
  const std::string when = " has no effect while num_visualizations is 0";
  EXPECT_THAT(effects("num_visualizations: 0" + asks),
              ElementsAre("eval_config.min_score_threshold" + when,
                          "eval_config.max_num_boxes_to_visualize" + when));
  EXPECT_THAT(effects("num_visualizations: 1" + asks), IsEmpty());
  EXPECT_THAT(effects("num_visualizations: 0 min_score_threshold: 0.5"), IsEmpty());
}

TEST(EffectWarningsTest, AnOptimizerWithoutMovingAverageHasNoDecay) {
  const auto effects = [](const std::string& optimizer) {
    return EffectsOf("train_config { optimizer { " + optimizer + " } }");
  };
  EXPECT_THAT(effects("use_moving_average: false moving_average_decay: 0.999"),
              ElementsAre("train_config.optimizer.moving_average_decay has no effect with "
                          "use_moving_average: false"));
  EXPECT_THAT(effects("use_moving_average: false moving_average_decay: 0.9999"), IsEmpty());
  EXPECT_THAT(effects("moving_average_decay: 0.999"), IsEmpty());
}

TEST(EffectWarningsTest, ABurninRateNeedsSteps) {
  const auto effects = [](const std::string& rate) {
    return EffectsOf(
        "train_config { optimizer { adam_optimizer { learning_rate { "
        "exponential_decay_learning_rate { " +
        rate + " } } } } }");
  };
  EXPECT_THAT(effects("burnin_learning_rate: 0.01"),
              ElementsAre("train_config.optimizer.adam_optimizer.learning_rate."
                          "exponential_decay_learning_rate.burnin_learning_rate has no effect "
                          "while burnin_steps is 0"));
  EXPECT_THAT(effects("burnin_learning_rate: 0.01 burnin_steps: 10"), IsEmpty());
  EXPECT_THAT(effects("burnin_learning_rate: 0 initial_learning_rate: 0.01"), IsEmpty());
}

TEST(EffectWarningsTest, SomeFieldsOfAnchorsAndTargetsExcludeOthers) {
  const auto effects = [](const std::string& ssd) {
    return EffectsOf("model { ssd { " + ssd + " } }");
  };
  const auto matcher = [&](const std::string& fields) {
    return effects("matcher { argmax_matcher { " + fields + " } }");
  };
  EXPECT_THAT(
      matcher("ignore_thresholds: true matched_threshold: 0.6 unmatched_threshold: 0.4"),
      ElementsAre("model.ssd.matcher.argmax_matcher.matched_threshold has no effect with "
                  "ignore_thresholds: true",
                  HasSubstr(".unmatched_threshold has no effect with ignore_thresholds: true")));
  EXPECT_THAT(matcher("ignore_thresholds: true matched_threshold: 0.5 unmatched_threshold: 0.5"),
              IsEmpty());
  EXPECT_THAT(matcher("matched_threshold: 0.6 unmatched_threshold: 0.4"), IsEmpty());
  const auto anchors = [&](const std::string& fields) {
    return effects("anchor_generator { ssd_anchor_generator { " + fields + " } }");
  };
  EXPECT_THAT(anchors("scales: 0.3 min_scale: 0.1 max_scale: 0.9"),
              ElementsAre("model.ssd.anchor_generator.ssd_anchor_generator.min_scale has no "
                          "effect with scales",
                          HasSubstr(".max_scale has no effect with scales")));
  EXPECT_THAT(anchors("scales: 0.3 min_scale: 0.2 max_scale: 0.95"), IsEmpty());
  EXPECT_THAT(anchors("min_scale: 0.1 max_scale: 0.9"), IsEmpty());
  const auto miner = [&](const std::string& fields) {
    return effects("loss { hard_example_miner { " + fields + " } }");
  };
  EXPECT_THAT(miner("min_negatives_per_image: 3"),
              ElementsAre("model.ssd.loss.hard_example_miner.min_negatives_per_image has no "
                          "effect while max_negatives_per_positive is 0"));
  EXPECT_THAT(miner("min_negatives_per_image: 3 max_negatives_per_positive: 3"), IsEmpty());
  EXPECT_THAT(miner("min_negatives_per_image: 0"), IsEmpty());
}

TEST(EffectWarningsTest, SomeNetworksHaveNoDepthwiseConvolutions) {
  const std::string hyperparams = " conv_hyperparams { batch_norm {} regularize_depthwise: true }";
  const auto classifier = [&](const std::string& type) {
    return EffectsOf("model { classifier { feature_extractor { type: '" + type + "'" + hyperparams +
                     " } } }");
  };
  EXPECT_THAT(classifier("resnet_v1_50"),
              ElementsAre("model.classifier.feature_extractor.conv_hyperparams."
                          "regularize_depthwise has no effect with resnet_v1_50, which has no "
                          "depthwise convolutions"));
  EXPECT_THAT(classifier("vgg_16"), ElementsAre(HasSubstr("with vgg_16")));
  EXPECT_THAT(classifier("mobilenet_v2"), IsEmpty());
  EXPECT_THAT(classifier("inception_v2"), IsEmpty()) << "its first layer is depthwise";

  const auto extractor = [&](const std::string& fields) {
    return EffectsOf("model { ssd { feature_extractor { " + fields + hyperparams + " } } }");
  };
  const std::string override = " override_base_feature_extractor_hyperparams: true";
  const auto warned =
      ElementsAre(HasSubstr("model.ssd.feature_extractor.conv_hyperparams.regularize_depthwise "
                            "has no effect without use_depthwise: true"));
  EXPECT_THAT(extractor("type: 'ssd_resnet50_v1_fpn'" + override), warned);
  EXPECT_THAT(extractor("type: 'ssd_mobilenet_v1'"), warned);
  EXPECT_THAT(extractor("type: 'ssd_mobilenet_v1'" + override), IsEmpty());
  EXPECT_THAT(extractor("type: 'ssd_resnet50_v1_fpn' use_depthwise: true"), IsEmpty());

  for (const char* name :
       {"convolutional_box_predictor", "weight_shared_convolutional_box_predictor"}) {
    const auto predictor = [&](const std::string& fields) {
      return EffectsOf(absl::StrCat("model { ssd { box_predictor { ", name, " {", fields,
                                    hyperparams, " } } } }"));
    };
    EXPECT_THAT(
        predictor(""),
        ElementsAre(HasSubstr(absl::StrCat(name,
                                           ".conv_hyperparams.regularize_depthwise has no effect "
                                           "without use_depthwise: true"))));
    EXPECT_THAT(predictor(" use_depthwise: true"), IsEmpty());
  }
}

TEST(EffectWarningsTest, AClassifierWithoutBatchNormHasNoneToFreeze) {
  const auto effects = [](const std::string& extractor) {
    return EffectsOf("model { classifier { freeze_batchnorm: true feature_extractor { " +
                     extractor + " } } }");
  };
  EXPECT_THAT(effects("type: 'vgg_a'"),
              ElementsAre(HasSubstr("model.classifier.freeze_batchnorm has no effect without "
                                    "conv_hyperparams.batch_norm")));
  EXPECT_THAT(effects("type: 'vgg_a' conv_hyperparams { batch_norm {} }"), IsEmpty());
  EXPECT_THAT(effects("type: 'mobilenet_v2'"), IsEmpty());
}

TEST(EffectWarningsTest, ACropOfAnImageWithoutBoxesMustNotHaveToCoverAllOfIt) {
  const auto effects = [](const std::string& model, const std::string& step) {
    return EffectsOf("model { " + model + " {} } train_config { data_augmentation_options { " +
                     step + " } }");
  };
  const auto classifier = [&](const std::string& step) { return effects("classifier", step); };
  const std::string first = "train_config.data_augmentation_options[0].";
  EXPECT_THAT(
      classifier("random_crop_image {}"),
      ElementsAre(AllOf(HasSubstr(first + "random_crop_image never crops with a classifier"),
                        HasSubstr("set min_object_covered to less than max_area"))));
  EXPECT_THAT(effects("ssd", "random_crop_image {}"), IsEmpty());
  EXPECT_THAT(classifier("random_crop_image { min_object_covered: 0.6 max_area: 0.5 }"),
              ElementsAre(HasSubstr("never crops")));
  EXPECT_THAT(classifier("random_crop_image { min_object_covered: 0.5 max_area: 0.5 }"), IsEmpty())
      << "a window of this area crops";
  EXPECT_THAT(classifier("random_crop_image { min_object_covered: 0.9 }"), IsEmpty());

  const std::string all = " operations { min_object_covered: 1 max_area: 1 }";
  const std::string some = " operations { min_object_covered: 0.5 max_area: 1 }";
  for (const std::string name :
       {"ssd_random_crop", "ssd_random_crop_pad", "ssd_random_crop_fixed_aspect_ratio"}) {
    EXPECT_THAT(classifier(name + " {" + all + all + " }"),
                ElementsAre(HasSubstr(first + name + ".operations never crop with a classifier")));
    EXPECT_THAT(classifier(name + " {" + all + some + " }"), IsEmpty());
    EXPECT_THAT(classifier(name + " {}"), IsEmpty()) << "the defaults crop";
  }
  EXPECT_THAT(classifier("random_horizontal_flip {}"), IsEmpty());
}

TEST(EffectWarningsTest, SomeFieldsOfAPredictorNeedAnother) {
  const auto effects = [](const std::string& predictor) {
    return EffectsOf("model { ssd { box_predictor { " + predictor + " } } }");
  };
  const auto plain = [&](const std::string& fields) {
    return effects("convolutional_box_predictor { use_dropout: false " + fields + " }");
  };
  EXPECT_THAT(plain("dropout_keep_probability: 0.8 min_depth: 0 max_depth: 0"), IsEmpty())
      << "as in TensorFlow's sample configs";
  EXPECT_THAT(plain("dropout_keep_probability: 0.5"),
              ElementsAre("model.ssd.box_predictor.convolutional_box_predictor."
                          "dropout_keep_probability has no effect without use_dropout: true"));
  EXPECT_THAT(effects("convolutional_box_predictor { dropout_keep_probability: 0.5 }"), IsEmpty());
  EXPECT_THAT(plain("max_depth: 8"),
              ElementsAre(HasSubstr(".max_depth has no effect while num_layers_before_predictor")));
  EXPECT_THAT(plain("min_depth: 8"), ElementsAre(HasSubstr(".min_depth has no effect while")));
  EXPECT_THAT(plain("num_layers_before_predictor: 1"),
              ElementsAre(HasSubstr(
                  ".num_layers_before_predictor has no effect while min_depth and max_depth")));
  EXPECT_THAT(plain("num_layers_before_predictor: 1 max_depth: 8"), IsEmpty());
  const auto shared = [&](const std::string& fields) {
    return effects("weight_shared_convolutional_box_predictor { " + fields + " }");
  };
  EXPECT_THAT(shared("depth: 8 share_prediction_tower: true"),
              ElementsAre(HasSubstr(".depth has no effect"),
                          HasSubstr(".share_prediction_tower has no effect")));
  EXPECT_THAT(shared("depth: 8 share_prediction_tower: true num_layers_before_predictor: 1"),
              IsEmpty());
}

TEST(EffectWarningsTest, SomeLayersHaveRelu6WhateverTheConfigSays) {
  const auto shared = [](const std::string& hyperparams) {
    return EffectsOf(
        "model { ssd { box_predictor { weight_shared_convolutional_box_predictor { "
        "num_layers_before_predictor: 1 conv_hyperparams { " +
        hyperparams + " } } } } }");
  };
  EXPECT_THAT(shared(""), IsEmpty());
  EXPECT_THAT(shared("activation: RELU_6"), IsEmpty());
  EXPECT_THAT(shared("activation: SWISH"), IsEmpty());
  EXPECT_THAT(shared("activation: NONE"),
              ElementsAre("model.ssd.box_predictor.weight_shared_convolutional_box_predictor."
                          "conv_hyperparams.activation has no effect unless it is SWISH: these "
                          "layers have RELU_6, as in TensorFlow"));
  const auto backbone = [](const std::string& type) {
    return EffectsOf("model { ssd { feature_extractor { type: '" + type +
                     "' override_base_feature_extractor_hyperparams: true conv_hyperparams { "
                     "activation: RELU } } } }");
  };
  EXPECT_THAT(backbone("ssd_mobilenet_v2"), ElementsAre(HasSubstr("RELU_6, as in TensorFlow 1")));
  EXPECT_THAT(backbone("ssd_mobilenet_v2_keras"), IsEmpty());
  EXPECT_THAT(backbone("ssd_mobilenet_v1"), IsEmpty());
}

TEST(EffectWarningsTest, SomeFieldsAreOfOneMode) {
  const std::string of_sync = "train_config { min_contributors: 1 replica_shares: BY_SPEED }";
  EXPECT_THAT(EffectsOf(of_sync), IsEmpty());
  EXPECT_THAT(EffectsOf(of_sync, /*sync=*/false),
              ElementsAre("train_config.min_contributors has no effect in asynchronous mode",
                          "train_config.replica_shares has no effect in asynchronous mode"));
  const std::string of_async = "train_config { max_staleness: 1 }";
  EXPECT_THAT(EffectsOf(of_async, /*sync=*/false), IsEmpty());
  EXPECT_THAT(EffectsOf(of_async),
              ElementsAre("train_config.max_staleness has no effect in synchronous mode"));
}

TEST(EffectWarningsTest, ClippingByNormHasTwoMeaningsInTensorflow) {
  EXPECT_THAT(EffectsOf("train_config { gradient_clipping_by_norm: 10 }"),
              ElementsAre(AllOf(HasSubstr("train_config.gradient_clipping_by_norm clips the "
                                          "gradient of each variable by itself"),
                                HasSubstr("the field is gradient_clipping_by_global_norm"))));
  EXPECT_THAT(EffectsOf("train_config { gradient_clipping_by_norm: 0 }"), IsEmpty());
  EXPECT_THAT(EffectsOf("train_config { gradient_clipping_by_global_norm: 10 }"), IsEmpty());
}

TEST(EffectWarningsTest, Tensorflow2WarmsItsMovingAveragesUp) {
  const auto effects = [](const std::string& type, const std::string& optimizer, bool evaluates) {
    return EffectsOf(absl::StrCat("model { ssd { feature_extractor { type: '", type,
                                  "' } } } train_config { optimizer {", optimizer,
                                  " } } eval_config { use_moving_averages: ", evaluates, " }"));
  };
  EXPECT_THAT(effects("ssd_mobilenet_v2_keras", "", true),
              ElementsAre(AllOf(HasSubstr("train_config.optimizer.moving_average_warmup is false"),
                                HasSubstr("model_main_tf2"))));
  EXPECT_THAT(effects("ssd_mobilenet_v2_keras", " moving_average_warmup: true", true), IsEmpty());
  EXPECT_THAT(effects("ssd_mobilenet_v2_keras", " use_moving_average: false", true), IsEmpty());
  EXPECT_THAT(effects("ssd_mobilenet_v2_keras", "", false), IsEmpty());
  EXPECT_THAT(effects("ssd_mobilenet_v2", "", true), IsEmpty());
}

TEST(EffectWarningsTest, AWarmStartNeedsACheckpoint) {
  const std::string fields =
      "fine_tune_checkpoint_type: 'detection' from_detection_checkpoint: true "
      "load_all_detection_checkpoint_vars: true";
  const std::string when = " has no effect without train_config.fine_tune_checkpoint";
  EXPECT_THAT(EffectsOf("train_config { " + fields + " }"),
              ElementsAre("train_config.fine_tune_checkpoint_type" + when,
                          "train_config.from_detection_checkpoint" + when,
                          "train_config.load_all_detection_checkpoint_vars" + when));
  EXPECT_THAT(EffectsOf("train_config { fine_tune_checkpoint: 'x' " + fields + " }"), IsEmpty());
}

TEST(EffectWarningsTest, AClassifierTakesAllVariablesOfAWarmStart) {
  const std::string when = " has no effect with a classifier";
  EXPECT_THAT(EffectsOf("model { classifier {} } train_config { fine_tune_checkpoint: 'x' "
                        "fine_tune_checkpoint_type: 'full' from_detection_checkpoint: true "
                        "load_all_detection_checkpoint_vars: true }"),
              ElementsAre("train_config.fine_tune_checkpoint_type" + when,
                          "train_config.from_detection_checkpoint" + when,
                          "train_config.load_all_detection_checkpoint_vars" + when));
}

TEST(EffectWarningsTest, AClassifiersCheckpointHasNoVariablesOfADetector) {
  const auto effects = [](const std::string& fields) {
    return EffectsOf("model { ssd {} } train_config { fine_tune_checkpoint: 'x' " + fields + " }");
  };
  const std::string all = "train_config.load_all_detection_checkpoint_vars has no effect ";
  EXPECT_THAT(effects("load_all_detection_checkpoint_vars: true"),
              ElementsAre(all + "without train_config.fine_tune_checkpoint_type: \"detection\""));
  const std::string classification = "fine_tune_checkpoint_type: 'classification' ";
  const std::string with = "with train_config.fine_tune_checkpoint_type: \"classification\"";
  EXPECT_THAT(effects(classification + "load_all_detection_checkpoint_vars: true"),
              ElementsAre(all + with));
  EXPECT_THAT(effects(classification + "from_detection_checkpoint: true"),
              ElementsAre("train_config.from_detection_checkpoint has no effect " + with));
  EXPECT_THAT(effects(classification), IsEmpty());
  EXPECT_THAT(effects("from_detection_checkpoint: true load_all_detection_checkpoint_vars: true"),
              IsEmpty());
  EXPECT_THAT(effects("fine_tune_checkpoint_type: 'detection' from_detection_checkpoint: true "
                      "load_all_detection_checkpoint_vars: true"),
              IsEmpty());
}

TEST(EffectWarningsTest, AreWarningsOfTheWholeCheck) {
  config::TrainEvalPipelineConfig config;
  config.mutable_train_config()->set_num_steps(1);
  config.mutable_train_config()->set_replica_shares(config::TrainConfig::BY_SPEED);
  ConfigContext context;
  context.sync = false;
  EXPECT_THAT(ValidatePipelineConfig(config, context).warnings,
              ElementsAre("train_config.replica_shares has no effect in asynchronous mode"));
  context.sync = true;
  EXPECT_THAT(ValidatePipelineConfig(config, context).warnings, IsEmpty());
}

}  // namespace
}  // namespace pushpull
