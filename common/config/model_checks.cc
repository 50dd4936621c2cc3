// Tested by tests/common/config/validate_config_test.cc.
// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/config/model_checks.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/config/anchor_checks.h"
#include "common/config/extractor_checks.h"
#include "common/config/layer_checks.h"
#include "common/config/loss_kinds.h"
#include "common/config/model_types.h"

namespace pushpull {
namespace {

constexpr int kMaxClasses = 1000000;
// All backbones have a stride of 32. The Object Detection API has the same minimum for SSD.
constexpr int kMinClassifierSide = 32;
constexpr int kMinSsdSide = 33;
// A last map of 8x8 pixels. The first dense layer of VGG then has 134 million weights.
constexpr int kMaxDenseHeadSide = 256;
constexpr int kMaxScalesPerOctave = 10;
constexpr int kMaxPredictorLayers = 16;
constexpr int kMaxPredictorKernel = 7;
constexpr int kMaxAspectRatios = 100;

std::string Field(absl::string_view name) { return absl::StrCat("model.ssd.", name); }

void CheckWeightSharedPredictor(const config::Ssd& ssd, FieldChecker* checker) {
  const std::string field = Field("box_predictor.weight_shared_convolutional_box_predictor");
  const config::WeightSharedConvolutionalBoxPredictor& predictor =
      ssd.box_predictor().weight_shared_convolutional_box_predictor();
  checker->Between(field + ".kernel_size", predictor.kernel_size(), 1, kMaxPredictorKernel);
  if (predictor.use_dropout()) {
    checker->Positive(field + ".dropout_keep_probability", predictor.dropout_keep_probability(), 1);
  }
  checker->Between(field + ".num_layers_before_predictor", predictor.num_layers_before_predictor(),
                   0, kMaxPredictorLayers);
  if (predictor.num_layers_before_predictor() > 0) {
    checker->Between(field + ".depth", predictor.depth(), 1, kMaxDepth);
  }
  CheckHyperparams(predictor.conv_hyperparams(), field + ".conv_hyperparams",
                   BatchNormUse::kOptional, checker);
  const config::SsdAnchorGenerator& anchors = ssd.anchor_generator().ssd_anchor_generator();
  if (ssd.anchor_generator().has_ssd_anchor_generator() && anchors.reduce_boxes_in_lowest_layer()) {
    checker->Add(Field("anchor_generator.ssd_anchor_generator.reduce_boxes_in_lowest_layer"),
                 "false with weight_shared_convolutional_box_predictor", "true",
                 "all maps need the same number of anchors at each location");
  }
}

void CheckPredictor(const config::Ssd& ssd, FieldChecker* checker) {
  const config::BoxPredictor& box_predictor = ssd.box_predictor();
  const std::string field = Field("box_predictor.convolutional_box_predictor");
  if (box_predictor.has_weight_shared_convolutional_box_predictor()) {
    CheckWeightSharedPredictor(ssd, checker);
    return;
  }
  if (!box_predictor.has_convolutional_box_predictor()) {
    if (box_predictor.box_predictor_oneof_case() ==
        config::BoxPredictor::BOX_PREDICTOR_ONEOF_NOT_SET) {
      checker->Missing(field, "convolutional_box_predictor { ... }");
    }
    return;
  }
  const config::ConvolutionalBoxPredictor& predictor = box_predictor.convolutional_box_predictor();
  checker->Between(field + ".kernel_size", predictor.kernel_size(), 1, kMaxPredictorKernel);
  if (predictor.use_dropout()) {
    checker->Positive(field + ".dropout_keep_probability", predictor.dropout_keep_probability(), 1);
  }
  checker->Between(field + ".num_layers_before_predictor", predictor.num_layers_before_predictor(),
                   0, kMaxPredictorLayers);
  checker->Between(field + ".min_depth", predictor.min_depth(), 0, kMaxDepth);
  checker->AtLeast(field + ".max_depth", predictor.max_depth(), 0);
  // A depthwise convolution has no biases.
  CheckHyperparams(predictor.conv_hyperparams(), field + ".conv_hyperparams",
                   predictor.use_depthwise() ? BatchNormUse::kRequired : BatchNormUse::kOptional,
                   checker);
}

template <typename Ratios>
void CheckAspectRatios(const Ratios& ratios, const std::string& field, FieldChecker* checker) {
  for (const float ratio : ratios) checker->Positive(field, ratio);
  if (ratios.empty()) checker->Missing(field, "at least one");
  if (ratios.size() > kMaxAspectRatios) {
    checker->Add(field, absl::StrCat("at most ", kMaxAspectRatios, " numbers"),
                 absl::StrCat(ratios.size()));
  }
}

void CheckMultiscaleAnchors(const config::Ssd& ssd, FieldChecker* checker) {
  const config::MultiscaleAnchorGenerator& anchors =
      ssd.anchor_generator().multiscale_anchor_generator();
  const std::string field = Field("anchor_generator.multiscale_anchor_generator");
  const config::FeaturePyramidNetworks& fpn = ssd.feature_extractor().fpn();
  const std::optional<SsdType> type = FindSsdType(ssd.feature_extractor().type());
  if (type.has_value() && !HasLevels(type->maps)) {
    checker->Add(field, "a feature extractor with a feature pyramid", absl::StrCat(type->name),
                 "use ssd_anchor_generator");
  } else if (anchors.min_level() != fpn.min_level() || anchors.max_level() != fpn.max_level()) {
    checker->Add(field + ".min_level, max_level",
                 absl::StrCat("those of model.ssd.feature_extractor.fpn (", fpn.min_level(), ", ",
                              fpn.max_level(), ")"),
                 absl::StrCat(anchors.min_level(), ", ", anchors.max_level()),
                 "make the two agree");
  }
  checker->Positive(field + ".anchor_scale", anchors.anchor_scale());
  checker->Between(field + ".scales_per_octave", anchors.scales_per_octave(), 1,
                   kMaxScalesPerOctave);
  CheckAspectRatios(anchors.aspect_ratios(), field + ".aspect_ratios", checker);
}

void CheckAnchors(const config::Ssd& ssd, FieldChecker* checker) {
  const config::AnchorGenerator& generator = ssd.anchor_generator();
  const std::string field = Field("anchor_generator.ssd_anchor_generator");
  if (generator.has_multiscale_anchor_generator()) {
    CheckMultiscaleAnchors(ssd, checker);
    return;
  }
  if (!generator.has_ssd_anchor_generator()) {
    if (generator.anchor_generator_oneof_case() ==
        config::AnchorGenerator::ANCHOR_GENERATOR_ONEOF_NOT_SET) {
      checker->Missing(field, "ssd_anchor_generator { ... }");
    }
    return;
  }
  const config::SsdAnchorGenerator& anchors = generator.ssd_anchor_generator();
  const int maps = NumFeatureMaps(ssd);
  if (maps != 0 && anchors.num_layers() != maps) {
    checker->Add(field + ".num_layers",
                 absl::StrCat("that of model.ssd.feature_extractor (", maps, ")"),
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
  CheckAnchorPlaces(anchors, field, checker);
  CheckAspectRatios(anchors.aspect_ratios(), field + ".aspect_ratios", checker);
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
  checker->Within(field + ".matched_threshold", matcher.matched_threshold(), 0.0, 1.0);
  checker->Within(field + ".unmatched_threshold", matcher.unmatched_threshold(), 0.0, 1.0);
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

// Visitors of loss_kinds.h, which check the numbers of a loss. schema_marks.h refuses NotSupported.

struct ClassificationLossChecks {
  const config::Ssd& ssd;
  const std::string field;
  FieldChecker* const checker;

  void operator()(const config::WeightedSigmoidClassificationLoss&) const {}
  void operator()(const config::WeightedSoftmaxClassificationLoss& softmax) const {
    checker->Positive(field + ".weighted_softmax.logit_scale", softmax.logit_scale());
    if (ssd.encode_background_as_zeros()) {
      checker->Add(Field("encode_background_as_zeros"), "false with weighted_softmax", "true",
                   "an anchor without an object would have no loss, so that the detector would "
                   "never learn what background is: set it to false, or use weighted_sigmoid or "
                   "weighted_sigmoid_focal");
    }
  }
  void operator()(const config::SigmoidFocalClassificationLoss& focal) const {
    checker->NotNegative(field + ".weighted_sigmoid_focal.gamma", focal.gamma());
    checker->Within(field + ".weighted_sigmoid_focal.alpha", focal.alpha(), 0.0, 1.0);
    if (ssd.loss().has_hard_example_miner()) {
      checker->Add(Field("loss.hard_example_miner"), "none with weighted_sigmoid_focal", "one",
                   "the focal loss weighs hard examples itself: remove one of the two");
    }
  }
  void operator()(const config::NotSupported&) const {}
};

struct LocalizationLossChecks {
  const std::string field;
  FieldChecker* const checker;

  void operator()(const config::WeightedL2LocalizationLoss&) const {}
  void operator()(const config::WeightedSmoothL1LocalizationLoss& smooth_l1) const {
    checker->Positive(field + ".weighted_smooth_l1.delta", smooth_l1.delta());
  }
  void operator()(const config::NotSupported&) const {}
};

void CheckLoss(const config::Ssd& ssd, FieldChecker* checker) {
  const config::Loss& loss = ssd.loss();
  const std::string field = Field("loss");
  if (loss.classification_loss().classification_loss_case() ==
      config::ClassificationLoss::CLASSIFICATION_LOSS_NOT_SET) {
    checker->Missing(field + ".classification_loss",
                     "weighted_sigmoid { }, weighted_softmax { } or weighted_sigmoid_focal { }");
  }
  VisitClassificationLoss(loss.classification_loss(),
                          ClassificationLossChecks{ssd, field + ".classification_loss", checker});
  if (loss.localization_loss().localization_loss_case() ==
      config::LocalizationLoss::LOCALIZATION_LOSS_NOT_SET) {
    checker->Missing(field + ".localization_loss", "weighted_smooth_l1 { } or weighted_l2 { }");
  }
  VisitLocalizationLoss(loss.localization_loss(),
                        LocalizationLossChecks{field + ".localization_loss", checker});
  checker->NotNegative(field + ".classification_weight", loss.classification_weight());
  checker->NotNegative(field + ".localization_weight", loss.localization_weight());
  if (!loss.has_hard_example_miner()) return;
  const config::HardExampleMiner& miner = loss.hard_example_miner();
  checker->AtLeast(field + ".hard_example_miner.num_hard_examples", miner.num_hard_examples(), 0);
  checker->Within(field + ".hard_example_miner.iou_threshold", miner.iou_threshold(), 0.0, 1.0);
  checker->AtLeast(field + ".hard_example_miner.max_negatives_per_positive",
                   miner.max_negatives_per_positive(), 0);
  checker->AtLeast(field + ".hard_example_miner.min_negatives_per_image",
                   miner.min_negatives_per_image(), 0);
}

void CheckPostProcessing(const config::PostProcessing& post, FieldChecker* checker) {
  const config::BatchNonMaxSuppression& nms = post.batch_non_max_suppression();
  const std::string field = Field("post_processing.batch_non_max_suppression");
  checker->Positive(Field("post_processing.logit_scale"), post.logit_scale());
  checker->Within(field + ".iou_threshold", nms.iou_threshold(), 0.0, 1.0);
  checker->AtLeast(field + ".max_detections_per_class", nms.max_detections_per_class(), 1);
  checker->AtLeast(field + ".max_total_detections", nms.max_total_detections(), 1);
}

// Checks the image size of a network in which a dense layer reads every pixel of the last map.
void CheckDenseHead(const config::ImageResizer& resizer, const std::string& field,
                    FieldChecker* checker) {
  const auto [height, width] = InputSides(resizer);
  if (height == width && height <= kMaxDenseHeadSide) return;
  checker->Add(field, absl::StrCat("a square of at most ", kMaxDenseHeadSide, " pixels a side"),
               absl::StrCat(height, " x ", width),
               "a dense layer of this network reads every pixel of the last map");
}

}  // namespace

void CheckClassifier(const config::Classifier& classifier, FieldChecker* checker) {
  const std::string field = "model.classifier";
  checker->Between(field + ".num_classes", classifier.num_classes(), 2, kMaxClasses);
  CheckImageResizer(classifier.image_resizer(), field + ".image_resizer", kMinClassifierSide,
                    checker);
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const std::optional<ClassifierType> type = FindClassifierType(extractor.type());
  if (!type.has_value()) {
    AddUnknownType(field + ".feature_extractor.type", extractor.type(), ClassifierTypeNames(),
                   checker);
  } else if (type->head == ClassifierHead::kDense) {
    CheckDenseHead(classifier.image_resizer(), field + ".image_resizer", checker);
  }
  checker->Positive(field + ".feature_extractor.depth_multiplier", extractor.depth_multiplier(),
                    kMaxDepthMultiplier);
  checker->Between(field + ".feature_extractor.min_depth", extractor.min_depth(), 1, kMaxDepth);
  if (extractor.has_conv_hyperparams()) {
    const std::string hyperparams = field + ".feature_extractor.conv_hyperparams";
    const BatchNormUse batch_norm = type.has_value() ? type->batch_norm : BatchNormUse::kRequired;
    CheckHyperparams(extractor.conv_hyperparams(), hyperparams, batch_norm, checker);
    if (batch_norm == BatchNormUse::kOptional) {
      CheckInitializerWithoutBatchNorm(extractor.conv_hyperparams(), hyperparams, checker);
    }
    const bool is_hidden_default =
        classifier.hidden_units() > 0 && !classifier.has_hidden_activation();
    if (type.has_value() && type->own_activations && !is_hidden_default &&
        extractor.conv_hyperparams().has_activation()) {
      checker->Add(field + ".feature_extractor.conv_hyperparams.activation", "no such field",
                   config::Hyperparams::Activation_Name(extractor.conv_hyperparams().activation()),
                   "remove it: this network has the activations of its paper");
    }
  }
  CheckInitializer(classifier.logits_initializer(), field + ".logits_initializer", checker);
  checker->Between(field + ".hidden_units", classifier.hidden_units(), 0, kMaxClasses);
  if (classifier.has_hidden_activation() && classifier.hidden_units() == 0) {
    checker->Add(field + ".hidden_activation", "no such field, because hidden_units is 0",
                 config::Hyperparams::Activation_Name(classifier.hidden_activation()),
                 "set hidden_units, or remove it: there is no hidden layer");
  }
  checker->Positive(field + ".dropout_keep_probability", classifier.dropout_keep_probability(), 1);
  checker->Fraction(field + ".label_smoothing", classifier.label_smoothing());
  if (classifier.num_channels() != 1 && classifier.num_channels() != kImageChannels) {
    checker->Add(field + ".num_channels", "1 (grey) or 3 (RGB)",
                 absl::StrCat(classifier.num_channels()));
  }
}

void CheckSsd(const config::Ssd& ssd, FieldChecker* checker, std::vector<std::string>* warnings) {
  checker->Between(Field("num_classes"), ssd.num_classes(), 1, kMaxClasses);
  checker->NotNegative(Field("negative_class_weight"), ssd.negative_class_weight());
  CheckImageResizer(ssd.image_resizer(), Field("image_resizer"), kMinSsdSide, checker);
  CheckExtractor(ssd, checker, warnings);
  CheckPredictor(ssd, checker);
  CheckAnchors(ssd, checker);
  CheckCoderAndMatcher(ssd, checker);
  CheckLoss(ssd, checker);
  CheckPostProcessing(ssd.post_processing(), checker);
}

}  // namespace pushpull
