// Tested by tests/kernels/detection/detection_units_test.cc.
#include "kernels/detection/detection_losses.h"

#include <algorithm>
#include <cmath>

#include "kernels/detection/loss_formulas.h"

namespace pushpull {
namespace {

// ln of the sum of exp(scores / scale).
template <typename T>
double LogSumExp(absl::Span<const T> scores, double scale) {
  const double largest = *std::max_element(scores.begin(), scores.end()) / scale;
  double sum = 0.0;
  for (const T score : scores) sum += std::exp(score / scale - largest);
  return largest + std::log(sum);
}

}  // namespace

template <typename T>
double ClassificationLoss(const DetectionLossSpec& spec, absl::Span<const T> scores,
                          int class_column) {
  const LossFormula formula = LossFormulaOf(spec);
  if (IsSoftmax(formula)) {
    if (class_column < 0) return 0.0;
    return SoftmaxLoss(formula, scores[class_column], LogSumExp(scores, formula.logit_scale));
  }
  double loss = 0.0;
  for (int c = 0; c < static_cast<int>(scores.size()); ++c) {
    loss += ScoreLoss(formula, scores[c], c == class_column);
  }
  return loss;
}

template <typename T>
void ClassificationGradient(const DetectionLossSpec& spec, absl::Span<const T> scores,
                            int class_column, double factor, T* out) {
  const LossFormula formula = LossFormulaOf(spec);
  const int columns = static_cast<int>(scores.size());
  if (IsSoftmax(formula)) {
    if (class_column < 0) {
      std::fill_n(out, columns, T(0));
      return;
    }
    const double log_sum = LogSumExp(scores, formula.logit_scale);
    for (int c = 0; c < columns; ++c) {
      out[c] =
          static_cast<T>(factor * SoftmaxSlope(formula, scores[c], log_sum, c == class_column));
    }
    return;
  }
  for (int c = 0; c < columns; ++c) {
    out[c] = static_cast<T>(factor * ScoreSlope(formula, scores[c], c == class_column));
  }
}

template <typename T>
double LocalizationLoss(const DetectionLossSpec& spec, const T* code, const BoxCode& target) {
  const LossFormula formula = LossFormulaOf(spec);
  double loss = 0.0;
  for (int i = 0; i < kBoxCodeSize; ++i) loss += CodeLoss(formula, code[i] - target[i]);
  return loss;
}

template <typename T>
void LocalizationGradient(const DetectionLossSpec& spec, const T* code, const BoxCode& target,
                          double factor, T* out) {
  const LossFormula formula = LossFormulaOf(spec);
  for (int i = 0; i < kBoxCodeSize; ++i) {
    out[i] = static_cast<T>(factor * CodeSlope(formula, code[i] - target[i]));
  }
}

#define PUSHPULL_INSTANTIATE(T)                                                               \
  template double ClassificationLoss<T>(const DetectionLossSpec&, absl::Span<const T>, int);  \
  template void ClassificationGradient<T>(const DetectionLossSpec&, absl::Span<const T>, int, \
                                          double, T*);                                        \
  template double LocalizationLoss<T>(const DetectionLossSpec&, const T*, const BoxCode&);    \
  template void LocalizationGradient<T>(const DetectionLossSpec&, const T*, const BoxCode&,   \
                                        double, T*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(double)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull
