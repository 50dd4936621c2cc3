// The arithmetic of the apply pass over short runs of contiguous elements, with AVX2 and FMA. Every
// operation except SquaredNormRun is elementwise and rounds the same in any lane, so the result
// does not depend on how a vector is cut into runs. Thread-safe, without state.
#ifndef PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_
#define PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "ps_server/store/optimizer.h"
#include "ps_server/store/state_vectors.h"

namespace pushpull {

// The longest run: one page of the flat vector.
inline constexpr int kMaxRunElements = 1024;

// One contributor's elements of the run, at any byte alignment, and the contributor's share of the
// samples.
struct WeightedSource {
  const char* data;
  float ratio;
  bool is_bfloat16 = false;  // otherwise float32
};

// The constants of one variable's update, each rounded to float once.
struct UpdateConstants {
  float l2_weight = 0.0f;
  float multiplier = 1.0f;
  float clip = 1.0f;
  float learning_rate = 0.0f;  // Adam: includes the bias correction
  float momentum = 0.0f;
  float one_minus_decay = 0.0f;  // RMSProp: 1 - decay; Adam: 1 - beta1
  float one_minus_beta2 = 0.0f;
  float epsilon = 0.0f;
  float one_minus_ema_decay = 0.0f;
};

// Computes the weighted sum of the sources: out[i] = r_0 * s_0[i], then out[i] = fma(r_k, s_k[i],
// out[i]) for k = 1, 2, ... Elements from count up to the next multiple of 16 become 0. Needs at
// least one source; `out` is 32-byte aligned and has room for kMaxRunElements.
void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out);

// clang-format off
// Makes elements [at, at + count) of `to` from `from` and the averaged gradient; `at` is a multiple
// of 16. The formulas are those of optimizer.h, with this rounding:
//
//   gradient   g  = fma(l2_weight, w, g) * multiplier * clip, from left to right
//
//   momentum   a' = fma(a, momentum, g)
//              w' = fma(-learning_rate, a', w)
//
//   RMSProp    s' = fma(g * g - s, one_minus_decay, s)
//              m' = fma(m, momentum, (g * learning_rate) / sqrt(s' + epsilon))
//              w' = w - m'
//
//   Adam       m' = fma(g - m, one_minus_decay, m)
//              v' = fma(g * g - v, one_minus_beta2, v)
//              w' = w - (m' * learning_rate) / (sqrt(v') + epsilon)
//
//   EMA        e' = fma(w' - e, one_minus_ema_decay, e)
//
// Elements from count up to the next multiple of 16 become 0. The stores bypass the caches: call
// StoreFence before the result is handed to another thread.
// clang-format on
void UpdateRun(OptimizerKind kind, const float* gradient, const UpdateConstants& constants,
               int64_t at, int count, const ConstStateVectors& from, const StateVectors& to);

// Updates a moving statistic: v' = fma(one_minus_decay, s - v, v). Writes v' to the weights and,
// where there is one, to the EMA. The rules of UpdateRun for `at`, padding and stores apply.
void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to);

// Returns the sum of (fma(l2_weight, w, g) * multiplier)^2, summed in double in an order that
// depends only on count.
double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count);

// Orders this thread's earlier stores before its later ones.
void StoreFence();

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_APPLY_KERNELS_H_
