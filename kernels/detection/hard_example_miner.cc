// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/hard_example_miner.h"

#include <algorithm>

#include "kernels/detection/mining_formulas.h"
#include "kernels/detection/non_max_suppression.h"

namespace pushpull {

std::vector<int> MineHardExamples(const DetectionLossSpec& loss, const HardExampleMinerSpec& spec,
                                  const MiningInput& input) {
  const RankingWeights weights = RankingWeightsOf(loss, spec);
  std::vector<float> losses(input.targets.size());
  for (size_t a = 0; a < losses.size(); ++a) {
    losses[a] = RankingLoss(weights, input.classification_losses[a], input.localization_losses[a]);
  }
  SuppressionOptions suppression;
  suppression.iou_threshold = spec.iou_threshold;
  suppression.max_boxes = static_cast<int>(input.targets.size());
  if (spec.num_hard_examples > 0) {
    suppression.max_boxes = std::min(suppression.max_boxes, spec.num_hard_examples);
  }
  const std::vector<int> hardest = SuppressNonMaxima(input.predicted_boxes, losses, suppression);
  if (spec.max_negatives_per_positive <= 0) return hardest;

  const int64_t positives = std::count_if(hardest.begin(), hardest.end(),
                                          [&input](int a) { return input.targets[a].match >= 0; });
  const int64_t max_negatives = MaxNegatives(spec, positives);
  std::vector<int> kept;
  int64_t negatives = 0;
  for (const int a : hardest) {
    const int match = input.targets[a].match;
    negatives += match == kUnmatched;
    if (match >= 0 || negatives <= max_negatives ||
        MustShow(input.classification_losses[a], input.localization_losses[a])) {
      kept.push_back(a);
    }
  }
  return kept;
}

}  // namespace pushpull
