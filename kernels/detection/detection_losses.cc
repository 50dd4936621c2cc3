// Tested by tests/kernels/detection/detection_units_test.cc.
#include "kernels/detection/detection_losses.h"

#include <algorithm>
#include <cmath>
#include <optional>

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

// A loss that is a sum over the scores and made of the sigmoid: -weight (1 - p)^gamma ln p, where p
// is the probability of the score's target.
struct SigmoidForm {
  double gamma;
  double target_weight;  // where the target is 1
  double other_weight;
};

// Returns nullopt for a loss that is not one.
std::optional<SigmoidForm> SigmoidFormOf(const LossFormula& formula) {
  switch (formula.classification) {
    case DetectionLossSpec::Classification::kSigmoid:
      return SigmoidForm{0.0, 1.0, 1.0};
    case DetectionLossSpec::Classification::kSigmoidFocal:
      return SigmoidForm{formula.focal_gamma, formula.focal_positive_weight,
                         formula.focal_negative_weight};
    case DetectionLossSpec::Classification::kSoftmax:
      break;
  }
  return std::nullopt;
}

// Calls visit(column, result) for each column with the result of `compute`, SigmoidLosses or
// SigmoidSlopes. The scores of all anchors together would take up to half of a training step if
// they were computed one by one.
template <typename T, typename Visit>
void ForEachSigmoid(decltype(SigmoidLosses)* compute, double gamma, absl::Span<const T> scores,
                    int class_column, const Visit& visit) {
  constexpr int kPart = 128;
  const int columns = static_cast<int>(scores.size());
  double results[kPart];
  for (int begin = 0; begin < columns; begin += kPart) {
    const int count = std::min(kPart, columns - begin);
    for (int i = 0; i < count; ++i) results[i] = -ToDouble(scores[begin + i]);
    const bool has_target = class_column >= begin && class_column < begin + count;
    if (has_target) results[class_column - begin] *= -1.0;
    compute(gamma, results, count, results);
    for (int i = 0; i < count; ++i) visit(begin + i, results[i]);
  }
}

template <typename T>
double SigmoidLoss(const SigmoidForm& form, absl::Span<const T> scores, int class_column) {
  double loss = 0.0;
  ForEachSigmoid(SigmoidLosses, form.gamma, scores, class_column, [&](int c, double of_score) {
    loss += (c == class_column ? form.target_weight : form.other_weight) * of_score;
  });
  return loss;
}

template <typename T>
void SigmoidGradient(const SigmoidForm& form, absl::Span<const T> scores, int class_column,
                     double factor, T* out) {
  ForEachSigmoid(SigmoidSlopes, form.gamma, scores, class_column, [&](int c, double slope) {
    Write(factor * (c == class_column ? form.target_weight : -form.other_weight) * slope, out + c);
  });
}

}  // namespace

template <typename T>
double ClassificationLoss(const DetectionLossSpec& spec, absl::Span<const T> scores,
                          int class_column) {
  const LossFormula formula = LossFormulaOf(spec);
  if (const std::optional<SigmoidForm> form = SigmoidFormOf(formula); form.has_value()) {
    return SigmoidLoss(*form, scores, class_column);
  }
  if (class_column < 0) return 0.0;
  return SoftmaxLoss(formula, ToDouble(scores[class_column]),
                     LogSumExp(scores, formula.logit_scale));
}

template <typename T>
void ClassificationGradient(const DetectionLossSpec& spec, absl::Span<const T> scores,
                            int class_column, double factor, T* out) {
  const LossFormula formula = LossFormulaOf(spec);
  if (const std::optional<SigmoidForm> form = SigmoidFormOf(formula); form.has_value()) {
    return SigmoidGradient(*form, scores, class_column, factor, out);
  }
  const int columns = static_cast<int>(scores.size());
  if (class_column < 0) {
    std::fill_n(out, columns, T{});
    return;
  }
  const double log_sum = LogSumExp(scores, formula.logit_scale);
  for (int c = 0; c < columns; ++c) {
    Write(factor * SoftmaxSlope(formula, ToDouble(scores[c]), log_sum, c == class_column), out + c);
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
