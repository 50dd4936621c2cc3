// The arithmetic of the apply pass over short runs of contiguous elements, apart from the
// optimizers' own (rules/). Every operation except SquaredNormRun is elementwise and rounds the
// same in any lane, so the result does not depend on how a vector is cut into runs. Thread-safe,
// without state.
#ifndef PUSHPULL_COMMON_OPTIMIZER_APPLY_KERNELS_H_
#define PUSHPULL_COMMON_OPTIMIZER_APPLY_KERNELS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/optimizer/state_vectors.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {

// The longest run: one page of the flat vector.
inline constexpr int kMaxRunElements = 1024;

// One contributor's elements of the run, and the contributor's share of the samples.
struct WeightedSource {
  const GradientCodec* codec;
  const char* chunk;       // the encoded chunk in which the run lies, at any byte alignment
  int64_t chunk_elements;  // elements of the whole chunk
  int64_t begin;           // the run's first element within the chunk
  float ratio;
};

// Computes the weighted sum of the sources: out[i] = r_0 * s_0[i], then out[i] = fma(r_k, s_k[i],
// out[i]) for k = 1, 2, ... Encoded sources are decoded first. Elements from count up to the next
// multiple of 16 become 0. Needs at least one source; `out` is 32-byte aligned and has room for
// kMaxRunElements.
void AverageRun(absl::Span<const WeightedSource> sources, int count, float* out);

// Updates a moving statistic: v' = fma(one_minus_decay, s - v, v), or s if one_minus_decay is 1.
// Writes v' to the weights and, where there is one, to the EMA. `at`, padding and stores are as in
// StepUpdate::Run.
void MovingStatisticRun(const float* statistic, float one_minus_decay, int64_t at, int count,
                        const ConstStateVectors& from, const StateVectors& to);

// Moves the EMA towards weights that stay as they are: e' = fma(w - e, one_minus_ema_decay, e).
// Writes nothing but the EMA, which there must be. The rest is as for MovingStatisticRun.
void MovingAverageRun(float one_minus_ema_decay, int64_t at, int count,
                      const ConstStateVectors& from, const StateVectors& to);

// Returns the sum of (fma(l2_weight, w, g) * multiplier)^2, summed in double in an order that
// depends only on count.
double SquaredNormRun(const float* gradient, const float* weights, float l2_weight,
                      float multiplier, int count);

// Orders this thread's earlier stores before its later ones.
void StoreFence();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_APPLY_KERNELS_H_
