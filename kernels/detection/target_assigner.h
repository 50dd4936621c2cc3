// Assigns to each anchor the object that it has to find (matching by overlap) and the targets that
// follow from it. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_
#define PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_

#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/box_coder.h"
#include "kernels/detection/target_formulas.h"

namespace pushpull {

// Returns for each anchor the index of its ground-truth box, or kUnmatched or kIgnored:
// 1. Takes the box that the anchor overlaps most, the first among equals. If the IoU is at least
//    matched_threshold, or with ignore_thresholds, the anchor is matched with the box. If the IoU
//    is below unmatched_threshold, it is unmatched, that is, background. Between the thresholds it
//    is ignored. Without negatives_lower_than_unmatched, "unmatched" and "ignored" are exchanged.
// 2. With force_match_for_each_row, each box also takes the anchor that overlaps it most, the first
//    among equals, however small the overlap. If several boxes take one anchor, the first box wins.
//    Boxes of weight 0, which mark what the losses ignore, take no anchor in this way.
// Without boxes all anchors are unmatched.
std::vector<int> MatchAnchors(const ArgMaxMatcherSpec& spec, absl::Span<const BoundingBox> anchors,
                              absl::Span<const LabeledBox> boxes);

// The targets and weights of one anchor.
struct AnchorTarget {
  int match = kUnmatched;
  // The column of the class target that is 1. 0 is the background; with -1 all columns are 0.
  int class_column = 0;
  float class_weight = 1.0f;
  float box_weight = 0.0f;
  BoxCode code = {};  // the target of the box code; only set for a matched anchor
};

// Returns one target per anchor. A matched anchor has the class column label + 1 and the weight of
// its box in both losses. An unmatched anchor has the background column (with
// encode_background_as_zeros none) and negative_class_weight. An ignored anchor has weight 0.
std::vector<AnchorTarget> AssignTargets(const DetectionSpec& spec,
                                        absl::Span<const BoundingBox> anchors,
                                        absl::Span<const LabeledBox> boxes);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_
