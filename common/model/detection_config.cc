// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/model/detection_config.h"

#include <algorithm>

#include "common/config/loss_kinds.h"
#include "common/model/image_resize.h"

namespace pushpull {
namespace {

MultiscaleAnchorSpec ResolveMultiscaleAnchors(const config::Ssd& ssd) {
  const config::MultiscaleAnchorGenerator& in =
      ssd.anchor_generator().multiscale_anchor_generator();
  const ImageSize image = ResizedSize(ssd.image_resizer());
  MultiscaleAnchorSpec spec;
  spec.min_level = in.min_level();
  spec.max_level = in.max_level();
  spec.anchor_scale = in.anchor_scale();
  spec.aspect_ratios.assign(in.aspect_ratios().begin(), in.aspect_ratios().end());
  spec.scales_per_octave = in.scales_per_octave();
  spec.image_height = image.height;
  spec.image_width = image.width;
  return spec;
}

int CountAnchors(const SsdAnchorSpec& spec, int map) {
  if (map == 0 && spec.reduce_boxes_in_lowest_layer) return 3;
  const int interpolated = spec.interpolated_scale_aspect_ratio > 0.0f ? 1 : 0;
  return static_cast<int>(spec.aspect_ratios.size()) + interpolated;
}

int CountAnchors(const MultiscaleAnchorSpec& spec, int /*map*/) {
  return static_cast<int>(spec.aspect_ratios.size()) * spec.scales_per_octave;
}

SsdAnchorSpec ResolveSsdAnchors(const config::Ssd& ssd) {
  const config::SsdAnchorGenerator& in = ssd.anchor_generator().ssd_anchor_generator();
  const ImageSize image = ResizedSize(ssd.image_resizer());
  const float shorter = static_cast<float>(std::min(image.height, image.width));
  SsdAnchorSpec spec;
  spec.num_layers = in.num_layers();
  spec.min_scale = in.min_scale();
  spec.max_scale = in.max_scale();
  spec.scales.assign(in.scales().begin(), in.scales().end());
  spec.aspect_ratios.assign(in.aspect_ratios().begin(), in.aspect_ratios().end());
  spec.reduce_boxes_in_lowest_layer = in.reduce_boxes_in_lowest_layer();
  spec.interpolated_scale_aspect_ratio = in.interpolated_scale_aspect_ratio();
  spec.base_anchor_height = in.base_anchor_height() * shorter / static_cast<float>(image.height);
  spec.base_anchor_width = in.base_anchor_width() * shorter / static_cast<float>(image.width);
  spec.height_stride.assign(in.height_stride().begin(), in.height_stride().end());
  spec.width_stride.assign(in.width_stride().begin(), in.width_stride().end());
  spec.height_offset.assign(in.height_offset().begin(), in.height_offset().end());
  spec.width_offset.assign(in.width_offset().begin(), in.width_offset().end());
  spec.image_height = image.height;
  spec.image_width = image.width;
  return spec;
}

HardExampleMinerSpec ResolveMiner(const config::HardExampleMiner& in) {
  HardExampleMinerSpec spec;
  spec.num_hard_examples = in.num_hard_examples();
  spec.iou_threshold = in.iou_threshold();
  spec.max_negatives_per_positive = in.max_negatives_per_positive();
  spec.min_negatives_per_image = in.min_negatives_per_image();
  switch (in.loss_type()) {
    case config::HardExampleMiner::BOTH:
      spec.loss_type = HardExampleMinerSpec::LossType::kBoth;
      break;
    case config::HardExampleMiner::CLASSIFICATION:
      spec.loss_type = HardExampleMinerSpec::LossType::kClassification;
      break;
    case config::HardExampleMiner::LOCALIZATION:
      spec.loss_type = HardExampleMinerSpec::LossType::kLocalization;
      break;
  }
  return spec;
}

// Visitors of loss_kinds.h, which write the loss of the config into *spec. A config that passed the
// checks has no NotSupported.

struct ClassificationLossResolver {
  DetectionLossSpec* const spec;

  void operator()(const config::WeightedSigmoidClassificationLoss&) const {
    spec->classification = DetectionLossSpec::Classification::kSigmoid;
  }
  void operator()(const config::WeightedSoftmaxClassificationLoss& softmax) const {
    spec->classification = DetectionLossSpec::Classification::kSoftmax;
    spec->logit_scale = softmax.logit_scale();
  }
  void operator()(const config::SigmoidFocalClassificationLoss& focal) const {
    spec->classification = DetectionLossSpec::Classification::kSigmoidFocal;
    spec->focal_gamma = focal.gamma();
    if (focal.has_alpha()) spec->focal_alpha = focal.alpha();
  }
  void operator()(const config::NotSupported&) const {}
};

struct LocalizationLossResolver {
  DetectionLossSpec* const spec;

  void operator()(const config::WeightedL2LocalizationLoss&) const {
    spec->localization = DetectionLossSpec::Localization::kL2;
  }
  void operator()(const config::WeightedSmoothL1LocalizationLoss& smooth_l1) const {
    spec->localization = DetectionLossSpec::Localization::kSmoothL1;
    spec->smooth_l1_delta = smooth_l1.delta();
  }
  void operator()(const config::NotSupported&) const {}
};

DetectionLossSpec ResolveLoss(const config::Ssd& ssd) {
  const config::Loss& in = ssd.loss();
  DetectionLossSpec spec;
  VisitClassificationLoss(in.classification_loss(), ClassificationLossResolver{&spec});
  VisitLocalizationLoss(in.localization_loss(), LocalizationLossResolver{&spec});
  if (in.has_hard_example_miner()) spec.hard_example_miner = ResolveMiner(in.hard_example_miner());
  spec.classification_weight = in.classification_weight();
  spec.localization_weight = in.localization_weight();
  spec.normalize_loss_by_num_matches = ssd.normalize_loss_by_num_matches();
  spec.normalize_loc_loss_by_codesize = ssd.normalize_loc_loss_by_codesize();
  spec.encode_background_as_zeros = ssd.encode_background_as_zeros();
  spec.negative_class_weight = ssd.negative_class_weight();
  return spec;
}

PostProcessingSpec ResolvePostProcessing(const config::PostProcessing& in) {
  PostProcessingSpec spec;
  switch (in.score_converter()) {
    case config::PostProcessing::IDENTITY:
      spec.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
      break;
    case config::PostProcessing::SIGMOID:
      spec.score_converter = PostProcessingSpec::ScoreConverter::kSigmoid;
      break;
    case config::PostProcessing::SOFTMAX:
      spec.score_converter = PostProcessingSpec::ScoreConverter::kSoftmax;
      break;
  }
  const config::BatchNonMaxSuppression& nms = in.batch_non_max_suppression();
  spec.logit_scale = in.logit_scale();
  spec.score_threshold = nms.score_threshold();
  spec.iou_threshold = nms.iou_threshold();
  spec.max_detections_per_class = nms.max_detections_per_class();
  spec.max_total_detections = nms.max_total_detections();
  return spec;
}

}  // namespace

int AnchorsPerLocation(const AnchorSpec& spec, int map) {
  return std::visit([map](const auto& anchors) { return CountAnchors(anchors, map); }, spec);
}

DetectionSpec ResolveDetection(const config::Ssd& ssd) {
  const config::FasterRcnnBoxCoder& coder = ssd.box_coder().faster_rcnn_box_coder();
  const config::ArgMaxMatcher& matcher = ssd.matcher().argmax_matcher();
  DetectionSpec spec;
  spec.num_classes = ssd.num_classes();
  if (ssd.anchor_generator().has_multiscale_anchor_generator()) {
    spec.anchors = ResolveMultiscaleAnchors(ssd);
  } else {
    spec.anchors = ResolveSsdAnchors(ssd);
  }
  spec.box_coder = {coder.y_scale(), coder.x_scale(), coder.height_scale(), coder.width_scale()};
  spec.matcher = {matcher.ignore_thresholds(), matcher.matched_threshold(),
                  matcher.unmatched_threshold(), matcher.negatives_lower_than_unmatched(),
                  matcher.force_match_for_each_row()};
  spec.loss = ResolveLoss(ssd);
  spec.post_processing = ResolvePostProcessing(ssd.post_processing());
  return spec;
}

}  // namespace pushpull
