// The operands of the fused operators. All structs are views: they own nothing, and their pointers
// are to memory that the operators can address.
#ifndef PUSHPULL_KERNELS_OPERANDS_H_
#define PUSHPULL_KERNELS_OPERANDS_H_

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/shape.h"

namespace pushpull {

// T is the type of activations and of their gradients. Variables, the gradients of variables, and
// statistics have the type ParameterOf<T>: float if T is Bfloat16, else T itself.
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

// The activations that a layer computes together with its convolution. All of them are clamps. The
// others are nodes of the graph (op::Activation in common/model/operators.h).
enum class FusedActivation { kNone, kRelu, kRelu6 };

// kBatch: mean and variance were computed from this batch, so gradients flow through them. kFrozen:
// they are constants.
enum class Statistics { kBatch, kFrozen };

// z = gamma * (y - mean) / sqrt(variance + epsilon) + beta. Each vector has one entry per channel.
// The variance is the biased one. P is a ParameterOf.
template <typename P>
struct BatchNorm {
  const P* gamma = nullptr;
  const P* beta = nullptr;
  const P* mean = nullptr;
  const P* variance = nullptr;
  double epsilon = 1e-3;
  Statistics statistics = Statistics::kBatch;
};

// A value that is computed where it is read: activation(batch_norm(raw)) + skip.
template <typename T>
struct Lazy {
  Shape shape;
  const T* raw = nullptr;
  const BatchNorm<ParameterOf<T>>* batch_norm = nullptr;  // null: identity
  FusedActivation activation = FusedActivation::kNone;
  const T* skip = nullptr;  // null, or a value of the same shape; only with FusedActivation::kNone
  // Null, or the value as Apply() wrote it, which is then read instead of being computed again.
  const T* applied = nullptr;
};

// The places for the statistics that a convolution writes of its output y: per channel, the mean
// and the biased variance over n * h * w. They are those of y as stored, that is, after rounding to
// T. Both pointers are null if no statistics are wanted.
template <typename T>
struct StatisticsOut {
  ParameterOf<T>* mean = nullptr;
  ParameterOf<T>* variance = nullptr;
};

// What a worker pushes for the moving statistics of a batch norm over `rows` values: the mean, and
// the unbiased variance, which is the variance times rows / max(rows - 1, 1). All vectors have one
// entry per channel. P is a ParameterOf.
template <typename P>
struct PushedStatistics {
  int64_t channels = 0;
  int64_t rows = 0;
  const P* mean = nullptr;
  const P* variance = nullptr;
  P* pushed_mean = nullptr;      // written
  P* pushed_variance = nullptr;  // written
};

// The gradient that a layer receives. With z = batch_norm(raw), dz is the derivative of the loss
// with respect to z, or to raw if there is no batch norm. Statistics::kBatch also needs
//   dbeta  = sum of dz
//   dgamma = sum of dz * (raw - mean) / sqrt(variance + epsilon)
template <typename T>
struct OutputGradient {
  const T* dz = nullptr;
  const T* raw = nullptr;                                 // only read for Statistics::kBatch
  const BatchNorm<ParameterOf<T>>* batch_norm = nullptr;  // null: identity
  const ParameterOf<T>* dbeta = nullptr;
  const ParameterOf<T>* dgamma = nullptr;
};

// The gradient that a layer hands to its input x: dz = (dvalue + add) * activation'(z), where
// z = batch_norm(x.raw). If x has a skip, dz is the gradient of the skip as well.
template <typename T>
struct InputGradient {
  // Null for the first layer, which needs no input gradient; the other fields are then ignored.
  T* dz = nullptr;
  // Null, or the gradient that reaches x through another layer. It may be dz itself.
  const T* add = nullptr;
  // The gradients of x.batch_norm; null exactly if x has none.
  ParameterOf<T>* dbeta = nullptr;
  ParameterOf<T>* dgamma = nullptr;
};

// Scratch memory that the caller lends for one call. It is 64-byte aligned and at least as large as
// the operator's Workspace function says. Its contents need not survive the call.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct ClassificationResult {
  double loss = 0;  // mean over the samples
  // The samples whose label is among the 1 or 5 largest logits. A tie counts against the label.
  int64_t top1 = 0;
  int64_t top5 = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_OPERANDS_H_
