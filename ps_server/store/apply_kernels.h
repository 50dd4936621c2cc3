// The arithmetic of the apply pass over short runs of contiguous elements, AVX2 and FMA. Every
// operation is elementwise and rounds the same in any lane, so how a vector is cut into runs does
// not change a bit.
#ifndef PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_
#define PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "ps_server/store/optimizer.h"
#include "ps_server/store/state_vectors.h"

namespace pushpull {

// Longest run: one page of the flat vector.
inline constexpr int kMaxRunElements = 1024;

// One contributor's elements of the run, at any byte alignment, and its share of the samples.
struct WeightedSource {
  const char* data;
  float ratio;
  bool is_bfloat16 = false;  // else float32
};

// The constants of one variable's update, rounded to float once.
struct UpdateConstants {
  float l2_weight = 0.0f;
  float multiplier = 1.0f;
  float clip = 1.0f;
  float learning_rate = 0.0f;  // Adam: with the bias correction
  float momentum = 0.0f;
  float one_minus_decay = 0.0f;  // RMSProp: 1 - decay; Adam: 1 - beta1
  float one_minus_beta2 = 0.0f;
  float epsilon = 0.0f;
  float one_minus_ema_decay = 0.0f;
};

// out[i] = r_0 * s_0[i], then fma(r_k, s_k[i], out[i]) for k = 1, 2, ...; elements from count up to
// the next multiple of 8 become 0. At least one source; out is 32-byte aligned with room for
// kMaxRunElements.
void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out);

// Updates count elements that begin at `at` in the vectors (a multiple of 16) from the averaged
// gradient:
//   g = fma(l2_weight, w, g) * multiplier * clip, left to right; then
//   momentum: a' = fma(a, momentum, g);  w' = fma(-learning_rate, a', w)
//   RMSProp:  s' = fma(g * g - s, one_minus_decay, s);
//             m' = fma(m, momentum, (g * learning_rate) / sqrt(s' + epsilon));  w' = w - m'
//   Adam:     m' = fma(g - m, one_minus_decay, m);  v' = fma(g * g - v, one_minus_beta2, v)
//             w' = w - (m' * learning_rate) / (sqrt(v') + epsilon)
//   EMA:      e' = fma(w' - e, one_minus_ema_decay, e)
// Elements up to the next multiple of 16 become 0. The stores bypass the caches: StoreFence before
// the result is handed to another thread.
void UpdateRun(OptimizerKind kind, const float* gradient, const UpdateConstants& constants,
               int64_t at, int count, const ConstStateVectors& from, const StateVectors& to);

// The moving statistic at `at`: v' = fma(one_minus_decay, s - v, v) in the weights and, where there
// is one, the EMA; with the same rules for padding and stores.
void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to);

// Sum of (fma(l2_weight, w, g) * multiplier)^2 in double, in an order that depends on count only.
double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count);

// Orders the stores of this thread before its later ones.
void StoreFence();

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_
