// The losses that are made of the sigmoid, and their slopes, for many scores at once, with vectors.
// The results are those of ScoreLoss and ScoreSlope (loss_formulas.h) before their weights, within
// a few units in the last place. The result of a score does not depend on its neighbours. Its last
// bits are the same with all instruction sets that have a fused multiply-add; SSE4 has none and
// rounds differently.
//
// s[i] is the score where the target is 1, and minus the score where it is 0. So p = sigmoid(s[i])
// is the probability of the target. gamma is the exponent of the focal loss, at least 0; with 0 it
// is the cross-entropy. A NaN stays one, and nothing overflows. Results may overwrite `s`.
// Thread-safe.
#ifndef PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_
#define PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_

#include <cstdint>

namespace pushpull {

// losses[i] = -(1 - p)^gamma ln p.
void SigmoidLosses(double gamma, const double* s, int64_t count, double* losses);

// slopes[i] = the derivative of losses[i] with respect to s[i], which is
// (1 - p)^gamma (gamma p ln p - (1 - p)).
void SigmoidSlopes(double gamma, const double* s, int64_t count, double* slopes);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SIGMOID_LOSSES_H_
