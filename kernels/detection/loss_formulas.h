// The formulas of detection_losses.h for one score or one entry of a box code, for the CPU and for
// a GPU. Pure functions that compute in double. Each switch names every loss, so a loss that
// lacks its formula does not compile. docs/HACKING.md says how to add a loss.
#ifndef PUSHPULL_KERNELS_DETECTION_LOSS_FORMULAS_H_
#define PUSHPULL_KERNELS_DETECTION_LOSS_FORMULAS_H_

#include <cmath>

#include "common/model/detection_spec.h"
#include "kernels/host_device.h"

namespace pushpull {

// What the formulas need of a DetectionLossSpec.
struct LossFormula {
  DetectionLossSpec::Classification classification;
  DetectionLossSpec::Localization localization;
  double logit_scale;
  double focal_gamma;
  double focal_positive_weight;
  double focal_negative_weight;
  double smooth_l1_delta;
};

inline LossFormula LossFormulaOf(const DetectionLossSpec& spec) {
  LossFormula formula;
  formula.classification = spec.classification;
  formula.localization = spec.localization;
  formula.logit_scale = spec.logit_scale;
  formula.focal_gamma = spec.focal_gamma;
  formula.focal_positive_weight = spec.focal_alpha.has_value() ? *spec.focal_alpha : 1.0;
  formula.focal_negative_weight = spec.focal_alpha.has_value() ? 1.0 - *spec.focal_alpha : 1.0;
  formula.smooth_l1_delta = spec.smooth_l1_delta;
  return formula;
}

PUSHPULL_HOST_DEVICE inline bool IsSoftmax(const LossFormula& formula) {
  return formula.classification == DetectionLossSpec::Classification::kSoftmax;
}

// -ln sigmoid(x), without overflow.
PUSHPULL_HOST_DEVICE inline double NegativeLogSigmoid(double x) {
  return (x > 0.0 ? 0.0 : -x) + log1p(exp(-fabs(x)));
}

// sigmoid(x), the probability that a score gives. Where exp overflows it is 0, which is the limit.
PUSHPULL_HOST_DEVICE inline double Probability(double x) { return 1.0 / (1.0 + exp(-x)); }

// a (1 - p)^gamma with p = sigmoid(s). s is the score in the target's column and minus the score in
// all others.
PUSHPULL_HOST_DEVICE inline double FocalFactor(const LossFormula& formula, double s,
                                               bool is_target) {
  return (is_target ? formula.focal_positive_weight : formula.focal_negative_weight) *
         pow(Probability(-s), formula.focal_gamma);
}

// What one score adds to the loss, and the derivative of that, for losses that are sums over the
// scores. Softmax is not one: both return 0 for it.
PUSHPULL_HOST_DEVICE inline double ScoreLoss(const LossFormula& formula, double score,
                                             bool is_target) {
  const double s = is_target ? score : -score;
  switch (formula.classification) {
    case DetectionLossSpec::Classification::kSigmoid:
      return NegativeLogSigmoid(s);
    case DetectionLossSpec::Classification::kSigmoidFocal:
      return FocalFactor(formula, s, is_target) * NegativeLogSigmoid(s);
    case DetectionLossSpec::Classification::kSoftmax:
      break;
  }
  return 0.0;
}

PUSHPULL_HOST_DEVICE inline double ScoreSlope(const LossFormula& formula, double score,
                                              bool is_target) {
  switch (formula.classification) {
    case DetectionLossSpec::Classification::kSigmoid:
      return Probability(score) - (is_target ? 1.0 : 0.0);
    case DetectionLossSpec::Classification::kSigmoidFocal: {
      const double s = is_target ? score : -score;
      const double inner =
          -formula.focal_gamma * Probability(s) * NegativeLogSigmoid(s) - Probability(-s);
      const double slope = FocalFactor(formula, s, is_target) * inner;
      return is_target ? slope : -slope;
    }
    case DetectionLossSpec::Classification::kSoftmax:
      break;
  }
  return 0.0;
}

// kSoftmax: the loss, and its derivative with respect to one score. log_sum is ln of the sum of
// exp(score / logit_scale) over all columns.
PUSHPULL_HOST_DEVICE inline double SoftmaxLoss(const LossFormula& formula, double target_score,
                                               double log_sum) {
  return log_sum - target_score / formula.logit_scale;
}

PUSHPULL_HOST_DEVICE inline double SoftmaxSlope(const LossFormula& formula, double score,
                                                double log_sum, bool is_target) {
  const double probability = exp(score / formula.logit_scale - log_sum);
  return (probability - (is_target ? 1.0 : 0.0)) / formula.logit_scale;
}

// What one entry of a box code adds to the loss, and the derivative of that. d is the difference of
// the entry from its target.
PUSHPULL_HOST_DEVICE inline double CodeLoss(const LossFormula& formula, double d) {
  const double distance = fabs(d), delta = formula.smooth_l1_delta;
  switch (formula.localization) {
    case DetectionLossSpec::Localization::kSmoothL1:
      return distance <= delta ? 0.5 * distance * distance : delta * (distance - 0.5 * delta);
    case DetectionLossSpec::Localization::kL2:
      return 0.5 * distance * distance;
  }
  return 0.0;
}

PUSHPULL_HOST_DEVICE inline double CodeSlope(const LossFormula& formula, double d) {
  switch (formula.localization) {
    case DetectionLossSpec::Localization::kSmoothL1:
      return fabs(d) > formula.smooth_l1_delta ? copysign(formula.smooth_l1_delta, d) : d;
    case DetectionLossSpec::Localization::kL2:
      return d;
  }
  return 0.0;
}

// The weight of the localization loss. TensorFlow's L2 loss applies the weight to the differences
// before it squares them, so there it is squared too.
PUSHPULL_HOST_DEVICE inline double LocalizationWeight(const LossFormula& formula,
                                                      double box_weight) {
  switch (formula.localization) {
    case DetectionLossSpec::Localization::kSmoothL1:
      return box_weight;
    case DetectionLossSpec::Localization::kL2:
      return box_weight * box_weight;
  }
  return 0.0;
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_LOSS_FORMULAS_H_
