#include "kernels/detection/detection_losses.h"

#include <algorithm>
#include <cmath>

namespace pushpull {
namespace {

// -ln sigmoid(x), without overflow.
double NegativeLogSigmoid(double x) {
  return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double FocalWeight(const DetectionLossSpec& spec, bool positive) {
  if (!spec.focal_alpha.has_value()) return 1.0;
  return positive ? *spec.focal_alpha : 1.0 - *spec.focal_alpha;
}

// With s = x where z = 1 and -x elsewhere, p = sigmoid(s).
double FocalLoss(const DetectionLossSpec& spec, double s, bool positive) {
  return FocalWeight(spec, positive) * std::pow(Sigmoid(-s), spec.focal_gamma) *
         NegativeLogSigmoid(s);
}

double FocalSlope(const DetectionLossSpec& spec, double s, bool positive) {
  const double p = Sigmoid(s);
  const double inner = -spec.focal_gamma * p * NegativeLogSigmoid(s) - Sigmoid(-s);
  const double slope =
      FocalWeight(spec, positive) * std::pow(Sigmoid(-s), spec.focal_gamma) * inner;
  return positive ? slope : -slope;
}

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
  double loss = 0.0;
  switch (spec.classification) {
    case DetectionLossSpec::Classification::kSigmoid:
      for (int c = 0; c < static_cast<int>(scores.size()); ++c) {
        loss += NegativeLogSigmoid(c == class_column ? scores[c] : -scores[c]);
      }
      break;
    case DetectionLossSpec::Classification::kSigmoidFocal:
      for (int c = 0; c < static_cast<int>(scores.size()); ++c) {
        const bool positive = c == class_column;
        loss += FocalLoss(spec, positive ? scores[c] : -scores[c], positive);
      }
      break;
    case DetectionLossSpec::Classification::kSoftmax:
      if (class_column >= 0) {
        loss = LogSumExp(scores, spec.logit_scale) - scores[class_column] / spec.logit_scale;
      }
      break;
  }
  return loss;
}

template <typename T>
void ClassificationGradient(const DetectionLossSpec& spec, absl::Span<const T> scores,
                            int class_column, double factor, T* out) {
  const int columns = static_cast<int>(scores.size());
  switch (spec.classification) {
    case DetectionLossSpec::Classification::kSigmoid:
      for (int c = 0; c < columns; ++c) {
        out[c] = static_cast<T>(factor * (Sigmoid(scores[c]) - (c == class_column ? 1.0 : 0.0)));
      }
      break;
    case DetectionLossSpec::Classification::kSigmoidFocal:
      for (int c = 0; c < columns; ++c) {
        const bool positive = c == class_column;
        out[c] =
            static_cast<T>(factor * FocalSlope(spec, positive ? scores[c] : -scores[c], positive));
      }
      break;
    case DetectionLossSpec::Classification::kSoftmax: {
      if (class_column < 0) {
        std::fill_n(out, columns, T(0));
        break;
      }
      const double log_sum = LogSumExp(scores, spec.logit_scale);
      for (int c = 0; c < columns; ++c) {
        const double probability = std::exp(scores[c] / spec.logit_scale - log_sum);
        const double target = c == class_column ? 1.0 : 0.0;
        out[c] = static_cast<T>(factor / spec.logit_scale * (probability - target));
      }
      break;
    }
  }
}

template <typename T>
double LocalizationLoss(const DetectionLossSpec& spec, const T* code, const BoxCode& target) {
  double loss = 0.0;
  const double delta = spec.smooth_l1_delta;
  for (int i = 0; i < kBoxCodeSize; ++i) {
    const double d = std::abs(code[i] - target[i]);
    const bool quadratic = spec.localization == DetectionLossSpec::Localization::kL2 || d <= delta;
    loss += quadratic ? 0.5 * d * d : delta * (d - 0.5 * delta);
  }
  return loss;
}

template <typename T>
void LocalizationGradient(const DetectionLossSpec& spec, const T* code, const BoxCode& target,
                          double factor, T* out) {
  const double delta = spec.smooth_l1_delta;
  for (int i = 0; i < kBoxCodeSize; ++i) {
    double d = code[i] - target[i];
    if (spec.localization == DetectionLossSpec::Localization::kSmoothL1 && std::abs(d) > delta) {
      d = std::copysign(delta, d);
    }
    out[i] = static_cast<T>(factor * d);
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
