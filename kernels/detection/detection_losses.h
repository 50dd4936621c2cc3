// The losses of one anchor and their derivatives. Pure functions; everything in double. T is the
// type of the network's numbers, float or double.
#ifndef PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_
#define PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/box_coder.h"

namespace pushpull {

// The loss of one anchor's scores x, one per class with the background first, against a target z
// that is 1 in `class_column` and 0 elsewhere (class_column -1: 0 everywhere), before weights:
//   kSigmoid       sum over columns of max(x, 0) - x z + ln(1 + exp(-|x|))
//   kSigmoidFocal  sum of a (1 - p)^gamma times that, where p is the sigmoid's probability of z and
//                  a = alpha where z = 1, 1 - alpha elsewhere (Lin et al., ICCV 2017)
//   kSoftmax       -ln softmax(x / logit_scale)[class_column]
template <typename T>
double ClassificationLoss(const DetectionLossSpec& spec, absl::Span<const T> scores,
                          int class_column);

// out[i] = factor * derivative by scores[i]. `out` has as many entries as `scores`.
template <typename T>
void ClassificationGradient(const DetectionLossSpec& spec, absl::Span<const T> scores,
                            int class_column, double factor, T* out);

// Of the four differences d between a box code and its target:
//   kSmoothL1  sum of |d| <= delta ? d^2 / 2 : delta (|d| - delta / 2)
//   kL2        sum of d^2 / 2
template <typename T>
double LocalizationLoss(const DetectionLossSpec& spec, const T* code, const BoxCode& target);

// out[i] = factor * derivative by code[i], four of them.
template <typename T>
void LocalizationGradient(const DetectionLossSpec& spec, const T* code, const BoxCode& target,
                          double factor, T* out);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_DETECTION_LOSSES_H_
