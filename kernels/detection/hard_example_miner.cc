#include "kernels/detection/hard_example_miner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/detection/non_max_suppression.h"

namespace pushpull {
namespace {

std::vector<float> RankingLosses(const DetectionLossSpec& loss, const HardExampleMinerSpec& spec,
                                 const MiningInput& input) {
  const bool both = spec.loss_type == HardExampleMinerSpec::LossType::kBoth;
  double classification = both ? loss.classification_weight : 1.0;
  double localization = both ? loss.localization_weight : 1.0;
  if (spec.loss_type == HardExampleMinerSpec::LossType::kClassification) localization = 0.0;
  if (spec.loss_type == HardExampleMinerSpec::LossType::kLocalization) classification = 0.0;
  std::vector<float> losses(input.targets.size());
  for (size_t a = 0; a < losses.size(); ++a) {
    losses[a] = static_cast<float>(classification * input.classification_losses[a] +
                                   localization * input.localization_losses[a]);
    // First in the list, so that the total loss shows it.
    if (std::isnan(losses[a])) losses[a] = std::numeric_limits<float>::infinity();
  }
  return losses;
}

}  // namespace

std::vector<int> MineHardExamples(const DetectionLossSpec& loss, const HardExampleMinerSpec& spec,
                                  const MiningInput& input) {
  const std::vector<float> losses = RankingLosses(loss, spec, input);
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
  const int64_t max_negatives =
      std::max<int64_t>(spec.min_negatives_per_image, spec.max_negatives_per_positive * positives);
  std::vector<int> kept;
  int64_t negatives = 0;
  for (const int a : hardest) {
    const int match = input.targets[a].match;
    negatives += match == kUnmatched;
    if (match >= 0 || negatives <= max_negatives) kept.push_back(a);
  }
  return kept;
}

}  // namespace pushpull
