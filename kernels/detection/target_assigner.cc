// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/target_assigner.h"

namespace pushpull {

std::vector<int> MatchAnchors(const ArgMaxMatcherSpec& spec, absl::Span<const BoundingBox> anchors,
                              absl::Span<const LabeledBox> boxes) {
  const int num_boxes = static_cast<int>(boxes.size());
  const int num_anchors = static_cast<int>(anchors.size());
  std::vector<int> matches(num_anchors, kUnmatched);
  if (num_boxes == 0) return matches;

  std::vector<int> best_anchor(num_boxes, 0);
  std::vector<float> best_anchor_overlap(num_boxes, -1.0f);
  for (int a = 0; a < num_anchors; ++a) {
    int best = 0;
    float best_overlap = -1.0f;
    for (int b = 0; b < num_boxes; ++b) {
      const float overlap = IntersectionOverUnion(boxes[b].box, anchors[a]);
      if (overlap > best_overlap) {
        best = b;
        best_overlap = overlap;
      }
      if (overlap > best_anchor_overlap[b]) {
        best_anchor[b] = a;
        best_anchor_overlap[b] = overlap;
      }
    }
    matches[a] = JudgeOverlap(spec, best, best_overlap);
  }
  if (spec.force_match_for_each_row) {
    for (int b = num_boxes - 1; b >= 0; --b) {
      if (MayForce(boxes[b])) matches[best_anchor[b]] = b;
    }
  }
  return matches;
}

std::vector<AnchorTarget> AssignTargets(const DetectionSpec& spec,
                                        absl::Span<const BoundingBox> anchors,
                                        absl::Span<const LabeledBox> boxes) {
  const std::vector<int> matches = MatchAnchors(spec.matcher, anchors, boxes);
  const BackgroundRule background = BackgroundRuleOf(spec.loss);
  std::vector<AnchorTarget> targets(anchors.size());
  for (size_t a = 0; a < anchors.size(); ++a) {
    AnchorTarget& target = targets[a];
    target.match = matches[a];
    const AnchorRole role = RoleOf(background, target.match, boxes.data());
    target.class_column = role.class_column;
    target.class_weight = role.class_weight;
    target.box_weight = role.box_weight;
    if (target.match >= 0) {
      target.code = EncodeBox(spec.box_coder, boxes[target.match].box, anchors[a]);
    }
  }
  return targets;
}

}  // namespace pushpull
