// Tested by tests/common/config/validate_config_test.cc.
// Tested by tests/common/model/ssd_mobilenet_test.cc.
#include "common/config/ssd_checks.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "common/config/hyperparams_checks.h"
#include "common/config/resizer_checks.h"

namespace pushpull {
namespace {

// Both backbones have a stride of 32. The Object Detection API has the same minimum.
constexpr int kMinImageSize = 33;
constexpr int kMaxImageSize = 4096;
constexpr int kMinMaps = 2;  // the maps of the backbone
constexpr int kMaxMaps = 6;  // with all extra layers
constexpr int kMaxPredictorLayers = 16;

std::string Field(absl::string_view name) { return absl::StrCat("model.ssd.", name); }

void CheckShare(const std::string& field, double value, FieldChecker* checker) {
  if (value >= 0.0 && value <= 1.0) return;
  checker->Add(field, "a number from 0 to 1", absl::StrCat(value));
}

void CheckExtractor(const config::SsdFeatureExtractor& extractor, FieldChecker* checker) {
  const std::string field = Field("feature_extractor");
  if (extractor.type() != "ssd_mobilenet_v1" && extractor.type() != "ssd_mobilenet_v2") {
    checker->Add(field + ".type", "\"ssd_mobilenet_v1\" or \"ssd_mobilenet_v2\"",
                 absl::StrCat("\"", extractor.type(), "\""));
  }
  if (!(extractor.depth_multiplier() > 0 && extractor.depth_multiplier() <= 4)) {
    checker->Add(field + ".depth_multiplier", "a number above 0 and at most 4",
                 absl::StrCat(extractor.depth_multiplier()));
  }
  checker->AtLeast(field + ".min_depth", extractor.min_depth(), 1);
  checker->Between(field + ".num_layers", extractor.num_layers(), kMinMaps, kMaxMaps);
  CheckHyperparams(extractor.conv_hyperparams(), field + ".conv_hyperparams",
                   BatchNormUse::kRequired, checker);
}

void CheckPredictor(const config::BoxPredictor& box_predictor, FieldChecker* checker) {
  const std::string field = Field("box_predictor.convolutional_box_predictor");
  if (!box_predictor.has_convolutional_box_predictor()) {
    if (box_predictor.box_predictor_oneof_case() ==
        config::BoxPredictor::BOX_PREDICTOR_ONEOF_NOT_SET) {
      checker->Missing(field, "convolutional_box_predictor { ... }");
    }
    return;
  }
  const config::ConvolutionalBoxPredictor& predictor = box_predictor.convolutional_box_predictor();
  checker->Between(field + ".kernel_size", predictor.kernel_size(), 1, 7);
  const float keep = predictor.dropout_keep_probability();
  if (predictor.use_dropout() && !(keep > 0 && keep <= 1)) {
    checker->Add(field + ".dropout_keep_probability", "a number above 0 and at most 1",
                 absl::StrCat(keep));
  }
  checker->Between(field + ".num_layers_before_predictor", predictor.num_layers_before_predictor(),
                   0, kMaxPredictorLayers);
  checker->AtLeast(field + ".min_depth", predictor.min_depth(), 0);
  checker->AtLeast(field + ".max_depth", predictor.max_depth(), 0);
  const bool hidden = predictor.use_depthwise() || predictor.num_layers_before_predictor() > 0;
  CheckHyperparams(predictor.conv_hyperparams(), field + ".conv_hyperparams",
                   hidden ? BatchNormUse::kRequired : BatchNormUse::kOptional, checker);
}

void CheckAnchors(const config::Ssd& ssd, FieldChecker* checker) {
  const config::AnchorGenerator& generator = ssd.anchor_generator();
  const std::string field = Field("anchor_generator.ssd_anchor_generator");
  if (!generator.has_ssd_anchor_generator()) {
    if (generator.anchor_generator_oneof_case() ==
        config::AnchorGenerator::ANCHOR_GENERATOR_ONEOF_NOT_SET) {
      checker->Missing(field, "ssd_anchor_generator { ... }");
    }
    return;
  }
  const config::SsdAnchorGenerator& anchors = generator.ssd_anchor_generator();
  if (anchors.num_layers() != ssd.feature_extractor().num_layers()) {
    checker->Add(field + ".num_layers",
                 absl::StrCat("that of model.ssd.feature_extractor (",
                              ssd.feature_extractor().num_layers(), ")"),
                 absl::StrCat(anchors.num_layers()), "make the two agree");
  }
  checker->Positive(field + ".min_scale", anchors.min_scale());
  checker->Positive(field + ".base_anchor_height", anchors.base_anchor_height());
  checker->Positive(field + ".base_anchor_width", anchors.base_anchor_width());
  checker->Positive(field + ".max_scale", anchors.max_scale());
  if (anchors.max_scale() < anchors.min_scale()) {
    checker->Add(field + ".max_scale",
                 absl::StrCat("at least min_scale (", anchors.min_scale(), ")"),
                 absl::StrCat(anchors.max_scale()));
  }
  if (anchors.scales_size() > 0 && anchors.scales_size() != anchors.num_layers()) {
    checker->Add(field + ".scales",
                 absl::StrCat("one per layer (num_layers: ", anchors.num_layers(), ")"),
                 absl::StrCat(anchors.scales_size(), " numbers"));
  }
  for (const float scale : anchors.scales()) checker->Positive(field + ".scales", scale);
  for (const float ratio : anchors.aspect_ratios()) {
    checker->Positive(field + ".aspect_ratios", ratio);
  }
  if (anchors.aspect_ratios().empty()) checker->Missing(field + ".aspect_ratios", "at least one");
}

void CheckCoderAndMatcher(const config::Ssd& ssd, FieldChecker* checker) {
  if (ssd.box_coder().has_faster_rcnn_box_coder()) {
    const config::FasterRcnnBoxCoder& coder = ssd.box_coder().faster_rcnn_box_coder();
    const std::string field = Field("box_coder.faster_rcnn_box_coder");
    checker->Positive(field + ".y_scale", coder.y_scale());
    checker->Positive(field + ".x_scale", coder.x_scale());
    checker->Positive(field + ".height_scale", coder.height_scale());
    checker->Positive(field + ".width_scale", coder.width_scale());
  } else if (ssd.box_coder().box_coder_oneof_case() == config::BoxCoder::BOX_CODER_ONEOF_NOT_SET) {
    checker->Missing(Field("box_coder"), "faster_rcnn_box_coder { }");
  }
  if (ssd.similarity_calculator().region_similarity_case() ==
      config::RegionSimilarityCalculator::REGION_SIMILARITY_NOT_SET) {
    checker->Missing(Field("similarity_calculator"), "iou_similarity { }");
  }
  if (!ssd.matcher().has_argmax_matcher()) {
    if (ssd.matcher().matcher_oneof_case() == config::Matcher::MATCHER_ONEOF_NOT_SET) {
      checker->Missing(Field("matcher"), "argmax_matcher { ... }");
    }
    return;
  }
  const config::ArgMaxMatcher& matcher = ssd.matcher().argmax_matcher();
  const std::string field = Field("matcher.argmax_matcher");
  CheckShare(field + ".matched_threshold", matcher.matched_threshold(), checker);
  CheckShare(field + ".unmatched_threshold", matcher.unmatched_threshold(), checker);
  if (matcher.unmatched_threshold() > matcher.matched_threshold()) {
    checker->Add(field + ".unmatched_threshold",
                 absl::StrCat("at most matched_threshold (", matcher.matched_threshold(), ")"),
                 absl::StrCat(matcher.unmatched_threshold()));
  } else if (!matcher.negatives_lower_than_unmatched() &&
             matcher.unmatched_threshold() == matcher.matched_threshold()) {
    checker->Add(field + ".negatives_lower_than_unmatched", "true where both thresholds are equal",
                 "false",
                 "no anchor would be background: set it to true or lower unmatched_threshold");
  }
}

void CheckLoss(const config::Loss& loss, FieldChecker* checker) {
  const std::string field = Field("loss");
  const config::ClassificationLoss& classification = loss.classification_loss();
  if (classification.classification_loss_case() ==
      config::ClassificationLoss::CLASSIFICATION_LOSS_NOT_SET) {
    checker->Missing(field + ".classification_loss",
                     "weighted_sigmoid { }, weighted_softmax { } or weighted_sigmoid_focal { }");
  } else if (classification.has_weighted_softmax()) {
    checker->Positive(field + ".classification_loss.weighted_softmax.logit_scale",
                      classification.weighted_softmax().logit_scale());
  } else if (classification.has_weighted_sigmoid_focal()) {
    const std::string focal = field + ".classification_loss.weighted_sigmoid_focal";
    checker->NotNegative(focal + ".gamma", classification.weighted_sigmoid_focal().gamma());
    CheckShare(focal + ".alpha", classification.weighted_sigmoid_focal().alpha(), checker);
    if (loss.has_hard_example_miner()) {
      checker->Add(field + ".hard_example_miner", "none with weighted_sigmoid_focal", "one",
                   "the focal loss weighs hard examples itself: remove one of the two");
    }
  }
  const config::LocalizationLoss& localization = loss.localization_loss();
  if (localization.localization_loss_case() ==
      config::LocalizationLoss::LOCALIZATION_LOSS_NOT_SET) {
    checker->Missing(field + ".localization_loss", "weighted_smooth_l1 { } or weighted_l2 { }");
  } else if (localization.has_weighted_smooth_l1()) {
    checker->Positive(field + ".localization_loss.weighted_smooth_l1.delta",
                      localization.weighted_smooth_l1().delta());
  }
  checker->NotNegative(field + ".classification_weight", loss.classification_weight());
  checker->NotNegative(field + ".localization_weight", loss.localization_weight());
  if (!loss.has_hard_example_miner()) return;
  const config::HardExampleMiner& miner = loss.hard_example_miner();
  checker->AtLeast(field + ".hard_example_miner.num_hard_examples", miner.num_hard_examples(), 0);
  CheckShare(field + ".hard_example_miner.iou_threshold", miner.iou_threshold(), checker);
  checker->AtLeast(field + ".hard_example_miner.max_negatives_per_positive",
                   miner.max_negatives_per_positive(), 0);
  checker->AtLeast(field + ".hard_example_miner.min_negatives_per_image",
                   miner.min_negatives_per_image(), 0);
}

void CheckPostProcessing(const config::PostProcessing& post, FieldChecker* checker) {
  const config::BatchNonMaxSuppression& nms = post.batch_non_max_suppression();
  const std::string field = Field("post_processing.batch_non_max_suppression");
  checker->Positive(Field("post_processing.logit_scale"), post.logit_scale());
  CheckShare(field + ".iou_threshold", nms.iou_threshold(), checker);
  checker->AtLeast(field + ".max_detections_per_class", nms.max_detections_per_class(), 1);
  checker->AtLeast(field + ".max_total_detections", nms.max_total_detections(), 1);
}

}  // namespace

void CheckSsd(const config::Ssd& ssd, FieldChecker* checker) {
  checker->AtLeast(Field("num_classes"), ssd.num_classes(), 1);
  checker->NotNegative(Field("negative_class_weight"), ssd.negative_class_weight());
  CheckImageResizer(ssd.image_resizer(), Field("image_resizer"), {kMinImageSize, kMaxImageSize},
                    checker);
  CheckExtractor(ssd.feature_extractor(), checker);
  CheckPredictor(ssd.box_predictor(), checker);
  CheckAnchors(ssd, checker);
  CheckCoderAndMatcher(ssd, checker);
  CheckLoss(ssd.loss(), checker);
  CheckPostProcessing(ssd.post_processing(), checker);
}

}  // namespace pushpull
