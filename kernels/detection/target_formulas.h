// The rules of target_assigner.h for one anchor, for the CPU and for a GPU. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_TARGET_FORMULAS_H_
#define PUSHPULL_KERNELS_DETECTION_TARGET_FORMULAS_H_

#include <cstdint>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/host_device.h"

namespace pushpull {

// A ground-truth object.
struct LabeledBox {
  BoundingBox box;
  int32_t label = 0;    // 0-based, without the background
  float weight = 1.0f;  // the weight of its anchors in both losses
};

// Returns whether the box takes the anchor that overlaps it most if the matcher forces a match for
// each box.
PUSHPULL_HOST_DEVICE inline bool MayForce(const LabeledBox& box) { return box.weight > 0.0f; }

inline constexpr int kUnmatched = -1;  // background
inline constexpr int kIgnored = -2;    // between the thresholds; counts in no loss

// Returns the match of an anchor whose largest overlap is `overlap`, with `box`.
PUSHPULL_HOST_DEVICE inline int JudgeOverlap(const ArgMaxMatcherSpec& spec, int box,
                                             float overlap) {
  if (spec.ignore_thresholds || overlap >= spec.matched_threshold) return box;
  const bool low = overlap < spec.unmatched_threshold;
  return low == spec.negatives_lower_than_unmatched ? kUnmatched : kIgnored;
}

// The class target and weight of an anchor without an object.
struct BackgroundRule {
  bool as_zeros = false;  // no column of the class target is 1
  float class_weight = 1.0f;
};

inline BackgroundRule BackgroundRuleOf(const DetectionLossSpec& spec) {
  return {spec.encode_background_as_zeros, spec.negative_class_weight};
}

// The class target of an anchor and its weights in the losses.
struct AnchorRole {
  int class_column;  // as in AnchorTarget
  float class_weight;
  float box_weight;
};

PUSHPULL_HOST_DEVICE inline AnchorRole RoleOf(const BackgroundRule& background, int match,
                                              const LabeledBox* boxes) {
  if (match >= 0) return {boxes[match].label + 1, boxes[match].weight, boxes[match].weight};
  return {background.as_zeros ? -1 : 0, match == kIgnored ? 0.0f : background.class_weight, 0.0f};
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_TARGET_FORMULAS_H_
