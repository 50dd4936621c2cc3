#include "common/config/effect_warnings.h"

#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "common/config/augmentation_steps.h"
#include "common/config/frozen_batch_norms.h"
#include "common/config/model_types.h"
#include "common/config/set_values.h"

namespace pushpull {
namespace {

class EffectWarnings {
 public:
  explicit EffectWarnings(std::vector<std::string>* warnings) : warnings_(warnings) {}

  // `asks`: the field has a value that asks for something.
  void Add(bool asks, absl::string_view field, absl::string_view when) {
    if (asks) warnings_->push_back(absl::StrCat(field, " has no effect ", when));
  }

 private:
  std::vector<std::string>* const warnings_;
};

void WarnAboutTheMode(const config::TrainConfig& train, bool sync, EffectWarnings* warnings) {
  if (sync) {
    warnings->Add(train.max_staleness() > 0, "train_config.max_staleness", "in synchronous mode");
    return;
  }
  const char when[] = "in asynchronous mode";
  warnings->Add(train.min_contributors() > 0, "train_config.min_contributors", when);
  warnings->Add(train.replica_shares() != config::TrainConfig::EQUAL, "train_config.replica_shares",
                when);
}

void WarnAboutTheWarmStart(const config::TrainEvalPipelineConfig& config,
                           EffectWarnings* warnings) {
  const config::TrainConfig& train = config.train_config();
  const std::string& type = train.fine_tune_checkpoint_type();
  const char type_field[] = "train_config.fine_tune_checkpoint_type";
  const char detection_field[] = "train_config.from_detection_checkpoint";
  const char all_field[] = "train_config.load_all_detection_checkpoint_vars";
  const bool has_checkpoint = !train.fine_tune_checkpoint().empty();
  if (!has_checkpoint || config.model().has_classifier()) {
    const char* const when =
        has_checkpoint ? "with a classifier" : "without train_config.fine_tune_checkpoint";
    warnings->Add(!type.empty(), type_field, when);
    warnings->Add(train.from_detection_checkpoint(), detection_field, when);
    warnings->Add(train.load_all_detection_checkpoint_vars(), all_field, when);
    return;
  }
  const bool is_classification = type == "classification";
  warnings->Add(train.from_detection_checkpoint() && is_classification, detection_field,
                "with train_config.fine_tune_checkpoint_type: \"classification\"");
  const bool by_default = type.empty() && !train.from_detection_checkpoint();
  warnings->Add(train.load_all_detection_checkpoint_vars() && (is_classification || by_default),
                all_field,
                by_default ? "without train_config.fine_tune_checkpoint_type: \"detection\""
                           : "with train_config.fine_tune_checkpoint_type: \"classification\"");
}

void WarnAboutTheOptimizer(const config::Optimizer& optimizer, EffectWarnings* warnings) {
  const std::string field = "train_config.optimizer.";
  warnings->Add(!optimizer.use_moving_average() &&
                    optimizer.moving_average_decay() !=
                        config::Optimizer::default_instance().moving_average_decay(),
                field + "moving_average_decay", "with use_moving_average: false");
  const auto enter = [](const auto&, const auto&, const std::string&) { return true; };
  ForEachSetValue(optimizer, enter, [&](const SetValue& value) {
    using Rate = config::ExponentialDecayLearningRate;
    const auto* const rate = google::protobuf::DynamicCastToGenerated<Rate>(&value.message);
    if (rate == nullptr || value.field.number() != Rate::kBurninLearningRateFieldNumber) return;
    warnings->Add(rate->burnin_learning_rate() != 0 && rate->burnin_steps() == 0,
                  field + value.path, "while burnin_steps is 0");
  });
}

void WarnAboutDrawing(const config::EvalConfig& eval, absl::string_view when,
                      EffectWarnings* warnings) {
  const config::EvalConfig& unset = config::EvalConfig::default_instance();
  warnings->Add(eval.min_score_threshold() != unset.min_score_threshold(),
                "eval_config.min_score_threshold", when);
  warnings->Add(eval.max_num_boxes_to_visualize() != unset.max_num_boxes_to_visualize(),
                "eval_config.max_num_boxes_to_visualize", when);
}

// The evaluation of a classifier finds no boxes, so it neither draws nor writes any.
void WarnAboutBoxes(const config::EvalConfig& eval, EffectWarnings* warnings) {
  const config::EvalConfig& unset = config::EvalConfig::default_instance();
  const char when[] = "with a classifier";
  // 0 asks for no images, and there are none.
  warnings->Add(
      eval.num_visualizations() != unset.num_visualizations() && eval.num_visualizations() > 0,
      "eval_config.num_visualizations", when);
  warnings->Add(!eval.export_path().empty(), "eval_config.export_path", when);
  WarnAboutDrawing(eval, when, warnings);
  warnings->Add(eval.include_metrics_per_category(), "eval_config.include_metrics_per_category",
                when);
}

// TensorFlow has ReLU6 in some layers whatever the config says. It does not have SWISH.
bool AsksForNoRelu6(const config::Hyperparams& hyperparams) {
  return hyperparams.has_activation() && hyperparams.activation() != config::Hyperparams::RELU_6 &&
         hyperparams.activation() != config::Hyperparams::SWISH;
}

void WarnAboutFreezing(const config::Ssd& ssd, EffectWarnings* warnings) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  const bool follows_config = extractor.override_base_feature_extractor_hyperparams() &&
                              type.has_value() && type->base != BaseHyperparams::kFixed;
  warnings->Add(
      ssd.freeze_batchnorm() && BatchNormsToFreeze(ssd) == FrozenBatchNorms::kNone,
      "model.ssd.freeze_batchnorm",
      absl::StrCat("with ", extractor.type(),
                   follows_config ? " and override_base_feature_extractor_hyperparams" : "",
                   ", as in TensorFlow 1",
                   follows_config ? ": use batch_norm { train: false } in conv_hyperparams" : ""));
}

// The condition is that of WithSlimsDefinition in common/model/families/mobilenet_v2.cc.
void WarnAboutMobilenetV2(const config::SsdFeatureExtractor& extractor, EffectWarnings* warnings) {
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  const bool slims = absl::StartsWith(extractor.type(), "ssd_mobilenet_v2") &&
                     !IsKerasType(extractor.type()) && type.has_value() &&
                     type->base == BaseHyperparams::kAny &&
                     extractor.override_base_feature_extractor_hyperparams();
  warnings->Add(slims && AsksForNoRelu6(extractor.conv_hyperparams()),
                "model.ssd.feature_extractor.conv_hyperparams.activation",
                absl::StrCat("on the backbone of ", extractor.type(),
                             " unless it is SWISH: it has RELU_6, as in TensorFlow 1"));
}

void WarnAboutTargets(const config::Ssd& ssd, EffectWarnings* warnings) {
  const config::ArgMaxMatcher& matcher = ssd.matcher().argmax_matcher();
  if (matcher.ignore_thresholds()) {
    const config::ArgMaxMatcher& unset = config::ArgMaxMatcher::default_instance();
    const std::string field = "model.ssd.matcher.argmax_matcher.";
    const char when[] = "with ignore_thresholds: true";
    warnings->Add(matcher.matched_threshold() != unset.matched_threshold(),
                  field + "matched_threshold", when);
    warnings->Add(matcher.unmatched_threshold() != unset.unmatched_threshold(),
                  field + "unmatched_threshold", when);
  }
  const config::HardExampleMiner& miner = ssd.loss().hard_example_miner();
  warnings->Add(miner.min_negatives_per_image() > 0 && miner.max_negatives_per_positive() == 0,
                "model.ssd.loss.hard_example_miner.min_negatives_per_image",
                "while max_negatives_per_positive is 0");
}

void WarnAboutAnchors(const config::SsdAnchorGenerator& anchors, EffectWarnings* warnings) {
  if (anchors.scales().empty()) return;
  const config::SsdAnchorGenerator& unset = config::SsdAnchorGenerator::default_instance();
  const std::string field = "model.ssd.anchor_generator.ssd_anchor_generator.";
  warnings->Add(anchors.min_scale() != unset.min_scale(), field + "min_scale", "with scales");
  warnings->Add(anchors.max_scale() != unset.max_scale(), field + "max_scale", "with scales");
}

// True asks for something even of a detector, which has it while the field is unset: the schema's
// default is false.
void WarnAboutDepthwise(const config::Hyperparams& hyperparams, const std::string& field,
                        absl::string_view when, EffectWarnings* warnings) {
  warnings->Add(hyperparams.regularize_depthwise(),
                field + ".conv_hyperparams.regularize_depthwise", when);
}

void WarnAboutDepthwise(const config::Ssd& ssd, EffectWarnings* warnings) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  const bool follows = type.has_value() && (type->maps == FeatureMaps::kExtraLayers ||
                                            type->maps == FeatureMaps::kFeaturePyramid);
  const bool in_backbone = extractor.override_base_feature_extractor_hyperparams() &&
                           !absl::StartsWith(extractor.type(), "ssd_resnet");
  if (follows && !in_backbone && !extractor.use_depthwise()) {
    WarnAboutDepthwise(extractor.conv_hyperparams(), "model.ssd.feature_extractor",
                       "without use_depthwise: true: the layers that have these hyperparameters "
                       "are no depthwise convolutions",
                       warnings);
  }
}

void WarnAboutTheClassifier(const config::Classifier& classifier, EffectWarnings* warnings) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const std::optional<ClassifierType> type = FindClassifierType(extractor.type());
  warnings->Add(classifier.freeze_batchnorm() && type.has_value() &&
                    type->batch_norm == BatchNormUse::kOptional &&
                    !extractor.conv_hyperparams().has_batch_norm(),
                "model.classifier.freeze_batchnorm",
                "without conv_hyperparams.batch_norm: the network has no batch norms");
  if (absl::StartsWith(extractor.type(), "resnet_v1_") ||
      absl::StartsWith(extractor.type(), "vgg_")) {
    WarnAboutDepthwise(
        extractor.conv_hyperparams(), "model.classifier.feature_extractor",
        absl::StrCat("with ", extractor.type(), ", which has no depthwise convolutions"), warnings);
  }
}

// A visitor of augmentation_steps.h: whether a step crops, but never an image without boxes.
struct NeverCropsWithoutBoxes {
  // Such an image counts as one box, of which the window has to cover min_object_covered. The share
  // of a window that is not the whole image is below 1 and at most max_area.
  template <typename Crop>
  static bool KeepsAll(const Crop& crop) {
    return crop.min_object_covered() >= 1 || crop.min_object_covered() > crop.max_area();
  }
  template <typename Crops>
  static bool AllKeepAll(const Crops& crops) {
    return !crops.empty() && absl::c_all_of(crops, KeepsAll<typename Crops::value_type>);
  }

  bool operator()(const config::RandomCropImage& crop) const { return KeepsAll(crop); }
  bool operator()(const config::SSDRandomCrop& crop) const { return AllKeepAll(crop.operations()); }
  bool operator()(const config::SSDRandomCropPad& crop) const {
    return AllKeepAll(crop.operations());
  }
  bool operator()(const config::SSDRandomCropFixedAspectRatio& crop) const {
    return AllKeepAll(crop.operations());
  }
  template <typename Step>
  bool operator()(const Step&) const {
    return false;
  }
};

void WarnAboutCropsWithoutBoxes(const config::TrainConfig& train,
                                std::vector<std::string>* warnings) {
  for (int i = 0; i < train.data_augmentation_options_size(); ++i) {
    const config::PreprocessingStep& step = train.data_augmentation_options(i);
    if (!VisitAugmentationStep(step, NeverCropsWithoutBoxes{})) continue;
    const auto& name =
        step.GetDescriptor()->FindFieldByNumber(step.preprocessing_step_case())->name();
    warnings->push_back(absl::StrCat(
        "train_config.data_augmentation_options[", i, "].", name,
        step.has_random_crop_image() ? " never crops" : ".operations never crop",
        " with a classifier: an image without boxes counts as one box, and no smaller window that "
        "max_area allows covers min_object_covered of it; set min_object_covered to less than "
        "max_area, for example to 0"));
  }
}

// The fields that TensorFlow's sample configs set to no effect have their defaults there.
template <typename Predictor>
void WarnAboutThePredictor(const Predictor& predictor, const std::string& field, bool has_depth,
                           EffectWarnings* warnings) {
  const Predictor& unset = Predictor::default_instance();
  warnings->Add(!predictor.use_dropout() &&
                    predictor.dropout_keep_probability() != unset.dropout_keep_probability(),
                field + ".dropout_keep_probability", "without use_dropout: true");
  warnings->Add(predictor.num_layers_before_predictor() > 0 && !has_depth,
                field + ".num_layers_before_predictor", "while min_depth and max_depth are 0");
  if (!predictor.use_depthwise()) {
    WarnAboutDepthwise(predictor.conv_hyperparams(), field, "without use_depthwise: true",
                       warnings);
  }
}

void WarnAboutThePredictor(const config::BoxPredictor& box_predictor, EffectWarnings* warnings) {
  const std::string field = "model.ssd.box_predictor.";
  if (box_predictor.has_convolutional_box_predictor()) {
    const config::ConvolutionalBoxPredictor& predictor =
        box_predictor.convolutional_box_predictor();
    const std::string name = field + "convolutional_box_predictor";
    const bool has_depth = predictor.min_depth() > 0 || predictor.max_depth() > 0;
    WarnAboutThePredictor(predictor, name, has_depth, warnings);
    warnings->Add(has_depth && predictor.num_layers_before_predictor() == 0,
                  absl::StrCat(name, predictor.max_depth() > 0 ? ".max_depth" : ".min_depth"),
                  "while num_layers_before_predictor is 0");
  } else if (box_predictor.has_weight_shared_convolutional_box_predictor()) {
    const config::WeightSharedConvolutionalBoxPredictor& predictor =
        box_predictor.weight_shared_convolutional_box_predictor();
    const std::string name = field + "weight_shared_convolutional_box_predictor";
    WarnAboutThePredictor(predictor, name, /*has_depth=*/true, warnings);
    if (predictor.num_layers_before_predictor() > 0) {
      warnings->Add(AsksForNoRelu6(predictor.conv_hyperparams()),
                    name + ".conv_hyperparams.activation",
                    "unless it is SWISH: these layers have RELU_6, as in TensorFlow");
      return;
    }
    const char when[] = "while num_layers_before_predictor is 0";
    warnings->Add(predictor.depth() > 0, name + ".depth", when);
    warnings->Add(predictor.share_prediction_tower(), name + ".share_prediction_tower", when);
  }
}

// TensorFlow has two meanings of this field.
void WarnAboutClipping(const config::TrainConfig& train, std::vector<std::string>* warnings) {
  if (!(train.gradient_clipping_by_norm() > 0)) return;
  warnings->push_back(
      "train_config.gradient_clipping_by_norm clips the gradient of each variable by itself, as "
      "TensorFlow's legacy trainer does; model_main and model_main_tf2 clip by the norm of all "
      "gradients together, for which the field is gradient_clipping_by_global_norm");
}

// TensorFlow 2's averages always warm up: official.modeling.optimization has dynamic_decay=True,
// and the Object Detection API does not change it. TensorFlow 1's MovingAverageOptimizer never
// does.
void WarnAboutMovingAverages(const config::TrainEvalPipelineConfig& config,
                             std::vector<std::string>* warnings) {
  const config::Optimizer& optimizer = config.train_config().optimizer();
  if (!optimizer.use_moving_average() || optimizer.moving_average_warmup() ||
      !config.eval_config().use_moving_averages() ||
      !IsKerasType(config.model().ssd().feature_extractor().type())) {
    return;
  }
  warnings->push_back(
      "train_config.optimizer.moving_average_warmup is false, and eval_config.use_moving_averages "
      "evaluates the averages, which with a decay of 0.9999 need tens of thousands of steps to "
      "forget the initial weights; model_main_tf2 always trains as with moving_average_warmup: "
      "true");
}

}  // namespace

void WarnAboutEffects(const config::TrainEvalPipelineConfig& config, bool sync,
                      std::vector<std::string>* warnings) {
  EffectWarnings effects(warnings);
  WarnAboutTheMode(config.train_config(), sync, &effects);
  WarnAboutTheWarmStart(config, &effects);
  WarnAboutTheOptimizer(config.train_config().optimizer(), &effects);
  WarnAboutClipping(config.train_config(), warnings);
  WarnAboutMovingAverages(config, warnings);
  if (config.model().has_classifier()) {
    WarnAboutBoxes(config.eval_config(), &effects);
    WarnAboutTheClassifier(config.model().classifier(), &effects);
    WarnAboutCropsWithoutBoxes(config.train_config(), warnings);
  }
  if (config.model().has_ssd()) {
    WarnAboutFreezing(config.model().ssd(), &effects);
    WarnAboutMobilenetV2(config.model().ssd().feature_extractor(), &effects);
    WarnAboutDepthwise(config.model().ssd(), &effects);
    WarnAboutThePredictor(config.model().ssd().box_predictor(), &effects);
    WarnAboutAnchors(config.model().ssd().anchor_generator().ssd_anchor_generator(), &effects);
    WarnAboutTargets(config.model().ssd(), &effects);
    if (config.eval_config().num_visualizations() == 0) {
      WarnAboutDrawing(config.eval_config(), "while num_visualizations is 0", &effects);
    }
  }
}

}  // namespace pushpull
