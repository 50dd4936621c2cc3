// Which object each anchor has to find: matching by overlap, and the targets that follow. Pure
// functions.
#ifndef PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_
#define PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_

#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/box_coder.h"
#include "kernels/detection/target_formulas.h"

namespace pushpull {

// Per anchor the index of its ground-truth box, kUnmatched or kIgnored. An anchor goes to the box
// it overlaps most (the first of equals) if the IoU reaches matched_threshold; below
// unmatched_threshold it is background, between ignored (the other way round without
// negatives_lower_than_unmatched). With force_match_for_each_row each box also takes the anchor
// that overlaps it most (the first of equals), whatever the overlap; where several boxes want one
// anchor, the first box has it.
std::vector<int> MatchAnchors(const ArgMaxMatcherSpec& spec, absl::Span<const BoundingBox> anchors,
                              absl::Span<const LabeledBox> boxes);

struct AnchorTarget {
  int match = kUnmatched;
  // Column of the class target that is 1; 0: background; -1: all columns are 0.
  int class_column = 0;
  float class_weight = 1.0f;
  float box_weight = 0.0f;
  BoxCode code = {};  // with box_weight > 0
};

// One per anchor. A matched anchor has column label + 1 and its box's weight in both losses; an
// unmatched one the background (or no column with encode_background_as_zeros) and
// negative_class_weight; an ignored one no weight.
std::vector<AnchorTarget> AssignTargets(const DetectionSpec& spec,
                                        absl::Span<const BoundingBox> anchors,
                                        absl::Span<const LabeledBox> boxes);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_TARGET_ASSIGNER_H_
