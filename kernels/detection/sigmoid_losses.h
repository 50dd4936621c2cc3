// The sigmoid cross-entropy of many scores at once, with vectors. The result of a score does not
// depend on its neighbours. Its last bits are the same with all instruction sets that have a fused
// multiply-add; SSE4 has none and rounds differently.
#ifndef PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_
#define PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_

#include <cstdint>

namespace pushpull {

// losses[i] = -ln sigmoid(s[i]) = max(-s[i], 0) + ln(1 + exp(-|s[i]|)), without overflow, as
// NegativeLogSigmoid of loss_formulas.h within a few units in the last place. A NaN stays one.
// `losses` may be `s`. Thread-safe.
void NegativeLogSigmoids(const double* s, int64_t count, double* losses);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_
