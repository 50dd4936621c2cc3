// The formulas of hard_example_miner.h, for the CPU and for a GPU. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_MINING_FORMULAS_H_
#define PUSHPULL_KERNELS_DETECTION_MINING_FORMULAS_H_

#include <cmath>
#include <cstdint>

#include "common/model/detection_spec.h"
#include "kernels/host_device.h"

namespace pushpull {

// The weights of the two losses in the ranking of anchors.
struct RankingWeights {
  double classification;
  double localization;
};

inline RankingWeights RankingWeightsOf(const DetectionLossSpec& loss,
                                       const HardExampleMinerSpec& miner) {
  switch (miner.loss_type) {
    case HardExampleMinerSpec::LossType::kClassification:
      return {1.0, 0.0};
    case HardExampleMinerSpec::LossType::kLocalization:
      return {0.0, 1.0};
    case HardExampleMinerSpec::LossType::kBoth:
      break;
  }
  return {loss.classification_weight, loss.localization_weight};
}

// The loss by which anchors are ranked, hardest first. A NaN becomes infinity, so that its anchor
// is kept and the total loss shows the NaN.
PUSHPULL_HOST_DEVICE inline float RankingLoss(const RankingWeights& weights, double classification,
                                              double localization) {
  constexpr float kInfinity = INFINITY;
  const float loss = static_cast<float>(weights.classification * classification +
                                        weights.localization * localization);
  return loss != loss ? kInfinity : loss;
}

// Returns true for losses that are not finite. Their anchor is always kept; otherwise an image that
// may keep no unmatched anchor would hide a NaN or an infinity.
PUSHPULL_HOST_DEVICE inline bool MustShow(double classification, double localization) {
  const double sum = classification + localization;
  return !(sum - sum == 0.0);
}

// The number of unmatched anchors that may be kept beside `positives` matched ones. Only used with
// max_negatives_per_positive > 0.
PUSHPULL_HOST_DEVICE inline int64_t MaxNegatives(const HardExampleMinerSpec& miner,
                                                 int64_t positives) {
  const int64_t by_positives = miner.max_negatives_per_positive * positives;
  return by_positives < miner.min_negatives_per_image ? miner.min_negatives_per_image
                                                      : by_positives;
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_MINING_FORMULAS_H_
