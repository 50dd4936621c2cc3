// The fused operators a network is made of: a convolution reads its input through batch-norm,
// activation and skip ("apply on load") and emits the statistics its own batch-norm needs; backward
// mirrors it.
//
// Forward of a layer:   y = conv(value(x)),  mean, variance = statistics(y);  the next layer's
// input is Lazy{y, bn, ...}. Backward of a layer:  reads dz, the gradient of its normalised output,
// forms dy through batch-norm on load, writes dw, and writes for its input x the gradient of x's
// normalised value together with that batch-norm's dbeta and dgamma.
//
// Nothing is owned, nothing is allocated inside an operator, gradients are written and never
// accumulated. Results depend neither on the number of threads nor on earlier calls. Outputs must
// not overlap inputs unless said.
//
// Every pointer, results included, is to memory of the operators' MemorySource (kernels/memory.h).
// On the CPU a call blocks until its outputs are there. On a GPU it only queues the work: outputs
// are there for the operators that follow, and for the host once the device has been waited for. An
// Operators object serves one calling thread at a time.
#ifndef PUSHPULL_KERNELS_OPERATORS_H_
#define PUSHPULL_KERNELS_OPERATORS_H_

#include <cstdint>

#include "kernels/detection/ssd_loss.h"
#include "kernels/operands.h"
#include "kernels/packed_picture.h"

namespace pushpull {

template <typename T>
class Operators {
 public:
  using Parameter = ParameterOf<T>;
  virtual ~Operators() = default;

  // Bytes that any operator of this class may need for this convolution (forward and backward).
  virtual int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t PoolWorkspace(const Shape& shape) const = 0;

  // out[x.shape] = the value of x (x.applied is ignored).
  virtual void Apply(const Lazy<T>& x, T* out) = 0;

  // y[shape.out()] = convolution(x, weights) + bias. bias (one per output channel) may be null.
  virtual void Convolution(const ConvolutionShape& shape, const Lazy<T>& x,
                           const Parameter* weights, const Parameter* bias, T* y,
                           const StatisticsOut<T>& statistics, const Workspace& workspace) = 0;
  // dweights as weights; dbias null or one per output channel.
  virtual void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                   const Parameter* weights, const OutputGradient<T>& dy,
                                   Parameter* dweights, Parameter* dbias,
                                   const InputGradient<T>& dx, const Workspace& workspace) = 0;

  virtual void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const Parameter* weights, T* y,
                                    const StatisticsOut<T>& statistics,
                                    const Workspace& workspace) = 0;
  virtual void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                            const Parameter* weights, const OutputGradient<T>& dy,
                                            Parameter* dweights, const InputGradient<T>& dx,
                                            const Workspace& workspace) = 0;

  // y[n, 1, 1, c] = mean over height and width of x; dy[n, 1, 1, c].
  virtual void GlobalAveragePool(const Lazy<T>& x, T* y) = 0;
  virtual void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                         const Workspace& workspace) = 0;

  // y = x / (1 - rate) where kept, else 0; entry i is kept as a pure function of (*seed ^ salt, i).
  // 0 <= rate < 1. Its own backward: call it on dy with the same seed. In place allowed.
  virtual void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
                       T* y) = 0;

  // logits[samples, classes], labels in [0, classes). Target: (1 - smoothing) at the label plus
  // smoothing / classes everywhere. dlogits (of the mean loss) may be null.
  virtual void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const T* logits,
                                   const int32_t* labels, double smoothing, T* dlogits,
                                   ClassificationResult* result) = 0;

  // The loss of a detector and its gradient; formulas in kernels/detection/ssd_loss.h.
  virtual int64_t SsdLossWorkspace(int64_t samples, int64_t num_anchors) const = 0;
  virtual void SsdLoss(const SsdLossArguments<T>& arguments, SsdLossResult* result,
                       const Workspace& workspace) = 0;

  // Between the types of a network and of the host.
  virtual void ConvertFromFloat(int64_t size, const float* from, T* to) = 0;
  virtual void ConvertToFloat(int64_t size, const T* from, float* to) = 0;
  // images[samples, input.height, input.width, input.channels]: what a network reads of the
  // pictures in a block that CheckPackedPictures has found good.
  virtual void SamplePictures(const PictureInput& input, int64_t samples, const void* block,
                              T* images) = 0;

  // out[i] = 0.
  virtual void Zero(int64_t size, Parameter* out) = 0;
  // What is pushed for the moving statistics of a batch norm over `rows` samples: the mean, and the
  // variance times rows / max(rows - 1, 1). One entry per channel each.
  virtual void MovingStatistics(int64_t channels, int64_t rows, const Parameter* mean,
                                const Parameter* variance, Parameter* pushed_mean,
                                Parameter* pushed_variance) = 0;
  // Takes the initial mean 0 and variance 1 out of moving statistics in which they have the weight
  // `left` (0 <= left < 1): mean / (1 - left) and max(variance - left, 0) / (1 - left).
  virtual void CorrectStatistics(int64_t channels, double left, const Parameter* mean,
                                 const Parameter* variance, Parameter* corrected_mean,
                                 Parameter* corrected_variance) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_OPERATORS_H_
