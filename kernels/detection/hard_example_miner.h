// Which anchors of an image count in the loss: the hardest, with a bounded share of negatives. A
// pure function.
#ifndef PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_
#define PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_

#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/target_assigner.h"

namespace pushpull {

// One image; all spans have one entry per anchor.
struct MiningInput {
  absl::Span<const double> classification_losses;  // weighted by the anchor's weight
  absl::Span<const double> localization_losses;
  absl::Span<const BoundingBox> predicted_boxes;
  absl::Span<const AnchorTarget> targets;
};

// Indices of the anchors kept, hardest first. Anchors are listed by loss (that of loss_type; of
// both, weighted by classification_weight and localization_weight), leaving out those whose
// predicted box overlaps a harder one's by more than iou_threshold, at most num_hard_examples. With
// max_negatives_per_positive the list keeps its matched anchors and the others up to the point
// where the number of unmatched ones exceeds
//   max(min_negatives_per_image, max_negatives_per_positive * matched in the list).
// A loss that is NaN ranks first.
std::vector<int> MineHardExamples(const DetectionLossSpec& loss, const HardExampleMinerSpec& spec,
                                  const MiningInput& input);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_
