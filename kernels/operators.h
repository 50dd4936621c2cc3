// The fused operators a network is made of: a convolution reads its input through batch-norm,
// activation and skip
// ("apply on load") and emits the statistics its own batch-norm needs; backward mirrors it.
//
// Forward of a layer:   y = conv(value(x)),  mean, variance = statistics(y);  the next layer's
// input is Lazy{y, bn, ...}. Backward of a layer:  reads dz, the gradient of its normalised output,
// forms dy through batch-norm on load, writes dw, and writes for its input x the gradient of x's
// normalised value together with that batch-norm's dbeta and dgamma.
//
// All structs are views: nothing is owned, nothing is allocated inside an operator, gradients are
// written and never accumulated. Results depend neither on the number of threads nor on earlier
// calls. Outputs must not overlap inputs unless said. An Operators object serves one calling thread
// at a time; calls block until the result is there.
#ifndef PUSHPULL_KERNELS_OPERATORS_H_
#define PUSHPULL_KERNELS_OPERATORS_H_

#include <cstdint>

#include "kernels/detection/ssd_loss.h"
#include "kernels/shape.h"

namespace pushpull {

enum class Activation { kNone, kRelu, kRelu6 };

// Whether mean and variance were taken from this very batch (gradients flow through them) or are
// constants.
enum class Statistics { kBatch, kFrozen };

// z = gamma * (y - mean) / sqrt(variance + epsilon) + beta. Vectors of one entry per channel;
// variance is the biased one.
template <typename T>
struct BatchNorm {
  const T* gamma = nullptr;
  const T* beta = nullptr;
  const T* mean = nullptr;
  const T* variance = nullptr;
  double epsilon = 1e-3;
  Statistics statistics = Statistics::kBatch;
};

// A value not yet computed: activation(batch_norm(raw)) + skip.
template <typename T>
struct Lazy {
  Shape shape;
  const T* raw = nullptr;
  const BatchNorm<T>* batch_norm = nullptr;  // null: identity
  Activation activation = Activation::kNone;
  const T* skip = nullptr;  // null, or a residual of the same shape; only with Activation::kNone
  const T* applied =
      nullptr;  // null, or the value as Apply() wrote it: read instead of computed again
};

// Where a convolution puts the statistics of its output: per channel, mean and biased variance over
// n*h*w.
template <typename T>
struct StatisticsOut {
  T* mean = nullptr;  // both null: not wanted
  T* variance = nullptr;
};

// The gradient a layer receives: with z = batch_norm(raw), dz is the loss's derivative by z (or by
// raw without batch-norm). For Statistics::kBatch dbeta = sum dz and dgamma = sum dz * (raw - mean)
// / sqrt(variance + epsilon) must be there.
template <typename T>
struct OutputGradient {
  const T* dz = nullptr;
  const T* raw = nullptr;                    // only read with batch_norm
  const BatchNorm<T>* batch_norm = nullptr;  // null: identity
  const T* dbeta = nullptr;
  const T* dgamma = nullptr;
};

// The gradient a layer hands to its input x: dz = (dvalue + add) * activation'(z), where z =
// batch_norm(x.raw). With a skip dz is also the gradient of the skip.
template <typename T>
struct InputGradient {
  T* dz = nullptr;         // null: no input gradient wanted (first layer), all others ignored
  const T* add = nullptr;  // null, or the gradient that reaches x by another way; may be dz itself
  T* dbeta = nullptr;      // of x.batch_norm; null exactly when there is none
  T* dgamma = nullptr;
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

template <typename T>
class Operators {
 public:
  virtual ~Operators() = default;

  // Bytes that any operator of this class may need for this convolution (forward and backward).
  virtual int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t PoolWorkspace(const Shape& shape) const = 0;

  // out[x.shape] = the value of x (x.applied is ignored).
  virtual void Apply(const Lazy<T>& x, T* out) = 0;

  // y[shape.out()] = convolution(x, weights) + bias. bias (one per output channel) may be null.
  virtual void Convolution(const ConvolutionShape& shape, const Lazy<T>& x, const T* weights,
                           const T* bias, T* y, const StatisticsOut<T>& statistics,
                           const Workspace& workspace) = 0;
  // dweights as weights; dbias null or one per output channel.
  virtual void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                   const T* weights, const OutputGradient<T>& dy, T* dweights,
                                   T* dbias, const InputGradient<T>& dx,
                                   const Workspace& workspace) = 0;

  virtual void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const T* weights, T* y, const StatisticsOut<T>& statistics,
                                    const Workspace& workspace) = 0;
  virtual void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                            const T* weights, const OutputGradient<T>& dy,
                                            T* dweights, const InputGradient<T>& dx,
                                            const Workspace& workspace) = 0;

  // y[n, 1, 1, c] = mean over height and width of x; dy[n, 1, 1, c].
  virtual void GlobalAveragePool(const Lazy<T>& x, T* y) = 0;
  virtual void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                         const Workspace& workspace) = 0;

  // y = x / (1 - rate) where kept, else 0; entry i is kept as a pure function of (seed, i). 0 <=
  // rate < 1. Its own backward: call it on dy with the same seed. In place allowed.
  virtual void Dropout(int64_t size, const T* x, double rate, uint64_t seed, T* y) = 0;

  // logits[samples, classes], labels in [0, classes). Target: (1 - smoothing) at the label plus
  // smoothing / classes everywhere. dlogits (of the mean loss) may be null.
  virtual ClassificationResult SoftmaxCrossEntropy(int64_t samples, int64_t classes,
                                                   const T* logits, const int32_t* labels,
                                                   double smoothing, T* dlogits) = 0;

  // The loss of a detector and its gradient; formulas in kernels/detection/ssd_loss.h.
  virtual SsdLossResult SsdLoss(const SsdLossArguments<T>& arguments) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_OPERATORS_H_
