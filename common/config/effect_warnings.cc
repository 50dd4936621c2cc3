#include "common/config/effect_warnings.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/config/frozen_batch_norms.h"
#include "common/config/model_types.h"

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

// The evaluation of a classifier finds no boxes, so it neither draws nor writes any.
void WarnAboutBoxes(const config::EvalConfig& eval, EffectWarnings* warnings) {
  const config::EvalConfig& unset = config::EvalConfig::default_instance();
  const char when[] = "with a classifier";
  // 0 asks for no images, and there are none.
  warnings->Add(
      eval.num_visualizations() != unset.num_visualizations() && eval.num_visualizations() > 0,
      "eval_config.num_visualizations", when);
  warnings->Add(!eval.export_path().empty(), "eval_config.export_path", when);
  warnings->Add(eval.min_score_threshold() != unset.min_score_threshold(),
                "eval_config.min_score_threshold", when);
  warnings->Add(eval.max_num_boxes_to_visualize() != unset.max_num_boxes_to_visualize(),
                "eval_config.max_num_boxes_to_visualize", when);
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

void WarnAboutTheClassifier(const config::Classifier& classifier, EffectWarnings* warnings) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const std::optional<ClassifierType> type = FindClassifierType(extractor.type());
  warnings->Add(classifier.freeze_batchnorm() && type.has_value() &&
                    type->batch_norm == BatchNormUse::kOptional &&
                    !extractor.conv_hyperparams().has_batch_norm(),
                "model.classifier.freeze_batchnorm",
                "without conv_hyperparams.batch_norm: the network has no batch norms");
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

}  // namespace

void WarnAboutEffects(const config::TrainEvalPipelineConfig& config, bool sync,
                      std::vector<std::string>* warnings) {
  EffectWarnings effects(warnings);
  WarnAboutTheMode(config.train_config(), sync, &effects);
  WarnAboutTheWarmStart(config, &effects);
  WarnAboutClipping(config.train_config(), warnings);
  if (config.model().has_classifier()) {
    WarnAboutBoxes(config.eval_config(), &effects);
    WarnAboutTheClassifier(config.model().classifier(), &effects);
  }
  if (config.model().has_ssd()) {
    WarnAboutFreezing(config.model().ssd(), &effects);
    WarnAboutMobilenetV2(config.model().ssd().feature_extractor(), &effects);
    WarnAboutThePredictor(config.model().ssd().box_predictor(), &effects);
  }
}

}  // namespace pushpull
