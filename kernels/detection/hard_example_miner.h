// Hard example mining: chooses the anchors of an image that count in the loss, namely the hardest
// ones, with a bounded number of negatives. A pure function.
#ifndef PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_
#define PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_

#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/target_assigner.h"

namespace pushpull {

// The anchors of one image. All spans have one entry per anchor.
struct MiningInput {
  // Both losses are already weighted by the weight of the anchor.
  absl::Span<const double> classification_losses;
  absl::Span<const double> localization_losses;
  absl::Span<const BoundingBox> predicted_boxes;
  absl::Span<const AnchorTarget> targets;
};

// Returns the indices of the kept anchors, hardest first:
// 1. Sorts the anchors by descending loss: the one that loss_type names, or for kBoth the sum of
//    the two, weighted by classification_weight and localization_weight. A loss that is NaN comes
//    first. The lower index comes first among equals.
// 2. Goes down the list and drops each anchor whose predicted box overlaps that of a kept one by
//    more than iou_threshold, until num_hard_examples (0: any number) are kept.
// 3. With max_negatives_per_positive > 0, keeps all matched anchors of the list. The others are
//    kept only up to the point where the number of unmatched ones exceeds
//      max(min_negatives_per_image, max_negatives_per_positive * matched anchors in the list).
//    An anchor with a loss that is not finite is kept in any case, so that the sum shows it.
std::vector<int> MineHardExamples(const DetectionLossSpec& loss, const HardExampleMinerSpec& spec,
                                  const MiningInput& input);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_HARD_EXAMPLE_MINER_H_
