// The losses of one anchor and their derivatives. Pure functions that compute in double. T is the
// type of the network's outputs: float, double or Bfloat16.
#ifndef PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_
#define PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/box_coder.h"

namespace pushpull {

// The classification loss of one anchor, before weights. x are the anchor's scores, one per class
// with the background in column 0. The target z is 1 in `class_column` and 0 elsewhere; with
// class_column -1 it is 0 everywhere.
//   kSigmoid       sum over columns of max(x, 0) - x z + ln(1 + exp(-|x|))
//   kSigmoidFocal  sum over columns of a (1 - p)^gamma times the term above, where p is the
//                  probability that the sigmoid gives to z, and a is alpha where z = 1, else
//                  1 - alpha; without an alpha a is 1 (Lin et al., ICCV 2017)
//   kSoftmax       -ln softmax(x / logit_scale)[class_column]; 0 with class_column -1
template <typename T>
double ClassificationLoss(const DetectionLossSpec& spec, absl::Span<const T> scores,
                          int class_column);

// out[i] = factor * derivative of ClassificationLoss with respect to scores[i]. `out` has as many
// entries as `scores`.
template <typename T>
void ClassificationGradient(const DetectionLossSpec& spec, absl::Span<const T> scores,
                            int class_column, double factor, T* out);

// The localization loss of one anchor, before weights. d are the four differences between the box
// code and its target.
//   kSmoothL1  sum of |d| <= delta ? d^2 / 2 : delta (|d| - delta / 2)
//   kL2        sum of d^2 / 2
template <typename T>
double LocalizationLoss(const DetectionLossSpec& spec, const T* code, const BoxCode& target);

// out[i] = factor * derivative of LocalizationLoss with respect to code[i]. `code` and `out` have
// four entries.
template <typename T>
void LocalizationGradient(const DetectionLossSpec& spec, const T* code, const BoxCode& target,
                          double factor, T* out);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_
