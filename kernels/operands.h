// What the fused operators work on. All structs are views of memory that the operators can address:
// nothing is owned.
#ifndef PUSHPULL_KERNELS_OPERANDS_H_
#define PUSHPULL_KERNELS_OPERANDS_H_

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/shape.h"

namespace pushpull {

// T is the type of activations and of their gradients. Variables, their gradients and statistics
// are of ParameterOf<T>: float for Bfloat16, else T itself.
template <typename T>
struct ParameterType {
  using type = T;
};
template <>
struct ParameterType<Bfloat16> {
  using type = float;
};
template <typename T>
using ParameterOf = typename ParameterType<T>::type;

enum class Activation { kNone, kRelu, kRelu6 };

// Whether mean and variance were taken from this very batch (gradients flow through them) or are
// constants.
enum class Statistics { kBatch, kFrozen };

// z = gamma * (y - mean) / sqrt(variance + epsilon) + beta. Vectors of one entry per channel;
// variance is the biased one. P is a ParameterOf.
template <typename P>
struct BatchNorm {
  const P* gamma = nullptr;
  const P* beta = nullptr;
  const P* mean = nullptr;
  const P* variance = nullptr;
  double epsilon = 1e-3;
  Statistics statistics = Statistics::kBatch;
};

// A value not yet computed: activation(batch_norm(raw)) + skip.
template <typename T>
struct Lazy {
  Shape shape;
  const T* raw = nullptr;
  const BatchNorm<ParameterOf<T>>* batch_norm = nullptr;  // null: identity
  Activation activation = Activation::kNone;
  const T* skip = nullptr;  // null, or a residual of the same shape; only with Activation::kNone
  const T* applied =
      nullptr;  // null, or the value as Apply() wrote it: read instead of computed again
};

// Where a convolution puts the statistics of its output: per channel, mean and biased variance over
// n*h*w of y as it is stored.
template <typename T>
struct StatisticsOut {
  ParameterOf<T>* mean = nullptr;  // both null: not wanted
  ParameterOf<T>* variance = nullptr;
};

// The gradient a layer receives: with z = batch_norm(raw), dz is the loss's derivative by z (or by
// raw without batch-norm). For Statistics::kBatch dbeta = sum dz and dgamma = sum dz * (raw - mean)
// / sqrt(variance + epsilon) must be there.
template <typename T>
struct OutputGradient {
  const T* dz = nullptr;
  const T* raw = nullptr;                                 // only read with batch_norm
  const BatchNorm<ParameterOf<T>>* batch_norm = nullptr;  // null: identity
  const ParameterOf<T>* dbeta = nullptr;
  const ParameterOf<T>* dgamma = nullptr;
};

// The gradient a layer hands to its input x: dz = (dvalue + add) * activation'(z), where z =
// batch_norm(x.raw). With a skip dz is also the gradient of the skip.
template <typename T>
struct InputGradient {
  T* dz = nullptr;         // null: no input gradient wanted (first layer), all others ignored
  const T* add = nullptr;  // null, or the gradient that reaches x by another way; may be dz itself
  ParameterOf<T>* dbeta = nullptr;  // of x.batch_norm; null exactly when there is none
  ParameterOf<T>* dgamma = nullptr;
};

// The caller's memory for one call, 64-byte aligned, at least as large as the Workspace function
// says; contents need not survive.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct ClassificationResult {
  double loss = 0;  // mean over the samples
  int64_t top1 = 0;
  int64_t top5 =
      0;  // samples whose label is among the largest 1 / 5 logits; a tie counts against the label
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_OPERANDS_H_
