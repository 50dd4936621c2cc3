#include "common/config/effect_warnings.h"

#include <optional>

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
  if (config.model().has_classifier()) WarnAboutBoxes(config.eval_config(), &effects);
  if (config.model().has_ssd()) WarnAboutFreezing(config.model().ssd(), &effects);
}

}  // namespace pushpull
