// Tested by tests/kernels/detection/detection_units_test.cc.
#include "kernels/detection/detection_losses.h"

#include <algorithm>
#include <cmath>

#include "kernels/detection/loss_formulas.h"
#include "kernels/detection/sigmoid_losses.h"
#include "kernels/gather/numbers.h"

namespace pushpull {
namespace {

using gather::ToDouble;

template <typename T>
void Write(double value, T* to) {
  gather::Narrow(static_cast<gather::WideOf<T>>(value), to);
}

// ln of the sum of exp(scores / scale).
template <typename T>
double LogSumExp(absl::Span<const T> scores, double scale) {
  double largest = ToDouble(scores[0]) / scale;
  for (const T score : scores) largest = std::max(largest, ToDouble(score) / scale);
  double sum = 0.0;
  for (const T score : scores) sum += std::exp(ToDouble(score) / scale - largest);
  return largest + std::log(sum);
}

// The sum of ScoreLoss over all columns, for kSigmoid. The loss of every score of every anchor is a
// twentieth of a training step if it is computed score by score.
template <typename T>
double SigmoidLoss(absl::Span<const T> scores, int class_column) {
  constexpr int kPart = 128;
  const int columns = static_cast<int>(scores.size());
  double losses[kPart], loss = 0.0;
  for (int begin = 0; begin < columns; begin += kPart) {
    const int count = std::min(kPart, columns - begin);
    for (int i = 0; i < count; ++i) {
      const double score = ToDouble(scores[begin + i]);
      losses[i] = begin + i == class_column ? score : -score;
    }
    NegativeLogSigmoids(losses, count, losses);
    for (int i = 0; i < count; ++i) loss += losses[i];
  }
  return loss;
}

}  // namespace

template <typename T>
double ClassificationLoss(const DetectionLossSpec& spec, absl::Span<const T> scores,
                          int class_column) {
  const LossFormula formula = LossFormulaOf(spec);
  if (IsSoftmax(formula)) {
    if (class_column < 0) return 0.0;
    return SoftmaxLoss(formula, ToDouble(scores[class_column]),
                       LogSumExp(scores, formula.logit_scale));
  }
  if (formula.classification == DetectionLossSpec::Classification::kSigmoid) {
    return SigmoidLoss(scores, class_column);
  }
  double loss = 0.0;
  for (int c = 0; c < static_cast<int>(scores.size()); ++c) {
    loss += ScoreLoss(formula, ToDouble(scores[c]), c == class_column);
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
      std::fill_n(out, columns, T{});
      return;
    }
    const double log_sum = LogSumExp(scores, formula.logit_scale);
    for (int c = 0; c < columns; ++c) {
      Write(factor * SoftmaxSlope(formula, ToDouble(scores[c]), log_sum, c == class_column),
            out + c);
    }
    return;
  }
  for (int c = 0; c < columns; ++c) {
    Write(factor * ScoreSlope(formula, ToDouble(scores[c]), c == class_column), out + c);
  }
}

template <typename T>
double LocalizationLoss(const DetectionLossSpec& spec, const T* code, const BoxCode& target) {
  const LossFormula formula = LossFormulaOf(spec);
  double loss = 0.0;
  for (int i = 0; i < kBoxCodeSize; ++i) loss += CodeLoss(formula, ToDouble(code[i]) - target[i]);
  return loss;
}

template <typename T>
void LocalizationGradient(const DetectionLossSpec& spec, const T* code, const BoxCode& target,
                          double factor, T* out) {
  const LossFormula formula = LossFormulaOf(spec);
  for (int i = 0; i < kBoxCodeSize; ++i) {
    Write(factor * CodeSlope(formula, ToDouble(code[i]) - target[i]), out + i);
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
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull
