// DetectionSpec holds the settings of an SSD detector: anchors, box coding, matching, losses and
// post-processing, as the TensorFlow Object Detection API defines them. The structs are plain
// values with the API's defaults, and their fields have the names of the API's pipeline config.
#ifndef PUSHPULL_COMMON_MODEL_DETECTION_SPEC_H_
#define PUSHPULL_COMMON_MODEL_DETECTION_SPEC_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace pushpull {

// A box code is [ty, tx, th, tw].
inline constexpr int kBoxCodeSize = 4;

struct SsdAnchorSpec {
  int num_layers = 6;
  float min_scale = 0.2f;
  float max_scale = 0.95f;
  std::vector<float> scales;  // one per layer; empty: num_layers scales from min_scale to max_scale
  std::vector<float> aspect_ratios;
  bool reduce_boxes_in_lowest_layer = true;
  float base_anchor_height = 1.0f;               // fraction of the image's height
  float base_anchor_width = 1.0f;                // fraction of the image's width
  float interpolated_scale_aspect_ratio = 1.0f;  // 0 or less: no interpolated anchor
  // The places of the anchors, in pixels of the network's input, one per layer: the distance
  // between neighbours, and the centre of the first. Each vector may be empty. Without strides the
  // anchors divide the image evenly; without offsets the first centre is half a stride.
  std::vector<int> height_stride;
  std::vector<int> width_stride;
  std::vector<int> height_offset;
  std::vector<int> width_offset;
  int image_height = 0;  // of the network's input, in pixels; needed with strides or offsets
  int image_width = 0;
  bool operator==(const SsdAnchorSpec&) const = default;
};

// The anchors of RetinaNet (Lin et al., ICCV 2017): each map has those of a level, and those of the
// next level are twice as large.
struct MultiscaleAnchorSpec {
  int min_level = 3;  // of the first map; the stride of a level is 2^level pixels
  int max_level = 7;
  float anchor_scale = 4.0f;  // side of a level's smallest square anchor, in strides
  std::vector<float> aspect_ratios;
  int scales_per_octave = 2;
  int image_height = 0;  // of the network's input, in pixels
  int image_width = 0;
  bool operator==(const MultiscaleAnchorSpec&) const = default;
};

using AnchorSpec = std::variant<SsdAnchorSpec, MultiscaleAnchorSpec>;

struct FasterRcnnBoxCoderSpec {
  float y_scale = 10.0f;
  float x_scale = 10.0f;
  float height_scale = 5.0f;
  float width_scale = 5.0f;
  bool operator==(const FasterRcnnBoxCoderSpec&) const = default;
};

struct ArgMaxMatcherSpec {
  bool ignore_thresholds = false;
  float matched_threshold = 0.5f;
  float unmatched_threshold = 0.5f;
  bool negatives_lower_than_unmatched = true;
  bool force_match_for_each_row = false;
  bool operator==(const ArgMaxMatcherSpec&) const = default;
};

struct HardExampleMinerSpec {
  enum class LossType { kBoth, kClassification, kLocalization };
  int num_hard_examples = 64;  // 0: no limit
  float iou_threshold = 0.7f;
  LossType loss_type = LossType::kBoth;
  int max_negatives_per_positive = 0;  // 0: no limit
  int min_negatives_per_image = 0;
  bool operator==(const HardExampleMinerSpec&) const = default;
};

struct DetectionLossSpec {
  enum class Classification { kSigmoid, kSoftmax, kSigmoidFocal };
  enum class Localization { kSmoothL1, kL2 };
  Classification classification = Classification::kSigmoid;
  float logit_scale = 1.0f;          // kSoftmax: the logits are divided by it
  float focal_gamma = 2.0f;          // kSigmoidFocal
  std::optional<float> focal_alpha;  // kSigmoidFocal; absent: equal weights for both targets
  Localization localization = Localization::kSmoothL1;
  float smooth_l1_delta = 1.0f;
  float classification_weight = 1.0f;
  float localization_weight = 1.0f;
  std::optional<HardExampleMinerSpec> hard_example_miner;
  bool normalize_loss_by_num_matches = true;
  bool normalize_loc_loss_by_codesize = false;
  bool encode_background_as_zeros = false;
  float negative_class_weight = 1.0f;
  bool operator==(const DetectionLossSpec&) const = default;
};

struct PostProcessingSpec {
  enum class ScoreConverter { kIdentity, kSigmoid, kSoftmax };
  ScoreConverter score_converter = ScoreConverter::kIdentity;
  float logit_scale = 1.0f;
  float score_threshold = 0.0f;
  float iou_threshold = 0.6f;
  int max_detections_per_class = 100;
  int max_total_detections = 100;
  bool operator==(const PostProcessingSpec&) const = default;
};

// The predictions of one feature map. They are the values of two nodes: box_node gives the box
// codes, [H, W, anchors_per_location * 4], and class_node the class scores,
// [H, W, anchors_per_location * (num_classes + 1)].
struct DetectionHead {
  int box_node = -1;
  int class_node = -1;
  int height = 0;
  int width = 0;
  int anchors_per_location = 0;
  int64_t num_anchors() const { return int64_t{height} * width * anchors_per_location; }
  bool operator==(const DetectionHead&) const = default;
};

struct DetectionSpec {
  int num_classes = 0;  // not counting the background, which is column 0 of the scores
  std::vector<DetectionHead> heads;
  AnchorSpec anchors;
  FasterRcnnBoxCoderSpec box_coder;
  ArgMaxMatcherSpec matcher;
  DetectionLossSpec loss;
  PostProcessingSpec post_processing;

  int64_t num_anchors() const {
    int64_t total = 0;
    for (const DetectionHead& head : heads) total += head.num_anchors();
    return total;
  }
  bool operator==(const DetectionSpec&) const = default;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_DETECTION_SPEC_H_
