// The fused operators a network is made of. A convolution reads its input through batch norm,
// activation and skip ("apply on load") and computes the statistics that the batch norm after it
// needs, so a normalised activation is never stored. The backward pass mirrors this.
//
//   Forward pass of a layer    y = conv(value(x)); mean, variance = statistics(y). The input of the
//                              next layer is Lazy{y, bn, ...}.
//   Backward pass of a layer   Reads dz, the gradient of the layer's normalised output, and turns
//                              it into dy, the gradient of y, on load. Writes dw. For its input x
//                              it writes the gradient of x's normalised value and the dbeta and
//                              dgamma of x's batch norm.
//
// Operators own no operand. They write gradients and never accumulate into them. Results depend
// neither on the number of threads nor on earlier calls. Outputs must not overlap inputs unless a
// comment allows it.
//
// Every pointer, including those to results, is to memory of the operators' MemorySource
// (kernels/memory.h). On the CPU a call blocks until it has written its outputs. On a GPU it only
// queues the work: operators called later see the outputs, the host sees them once it has waited
// for the device (kernels/device.h). An Operators object serves one calling thread at a time.
#ifndef PUSHPULL_KERNELS_OPERATORS_H_
#define PUSHPULL_KERNELS_OPERATORS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "kernels/detection/ssd_loss.h"
#include "kernels/gather/gather.h"
#include "kernels/operands.h"
#include "kernels/packed_image.h"

namespace pushpull {

// T is the type of activations: float, Bfloat16 or double (reference operators only).
template <typename T>
class Operators {
 public:
  using Parameter = ParameterOf<T>;
  virtual ~Operators() = default;

  // The bytes of workspace that the forward and the backward operator need at most for this shape.
  virtual int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const = 0;
  virtual int64_t PoolWorkspace(const Shape& shape) const = 0;

  // out[x.shape] = the value of x. Ignores x.applied.
  virtual void Apply(const Lazy<T>& x, T* out) = 0;

  // y[shape.out()] = convolution(value of x, weights) + bias. `bias` has one entry per output
  // channel and may be null.
  virtual void Convolution(const ConvolutionShape& shape, const Lazy<T>& x,
                           const Parameter* weights, const Parameter* bias, T* y,
                           const StatisticsOut<T>& statistics, const Workspace& workspace) = 0;
  // The gradients of Convolution. `dweights` has the shape of the weights. `dbias` is null or has
  // one entry per output channel.
  virtual void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                   const Parameter* weights, const OutputGradient<T>& dy,
                                   Parameter* dweights, Parameter* dbias,
                                   const InputGradient<T>& dx, const Workspace& workspace) = 0;

  // As above, for a depthwise convolution without biases.
  virtual void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const Parameter* weights, T* y,
                                    const StatisticsOut<T>& statistics,
                                    const Workspace& workspace) = 0;
  virtual void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                            const Parameter* weights, const OutputGradient<T>& dy,
                                            Parameter* dweights, const InputGradient<T>& dx,
                                            const Workspace& workspace) = 0;

  // y[n, 1, 1, c] = the mean of the value of x over height and width. dy has the shape of y.
  virtual void GlobalAveragePool(const Lazy<T>& x, T* y) = 0;
  virtual void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                         const Workspace& workspace) = 0;

  // Computes all elements of a gather. Outputs may overlap inputs only where its comment says so.
  virtual void Run(const Gather<T>& gather) = 0;

  // y[i] = x[i] / (1 - rate) where entry i is kept, else 0. Whether it is kept is a pure function
  // of (*seed ^ salt, i). 0 <= rate < 1. The operator is its own gradient: call it on dy with the
  // same seed and salt. y may be x.
  virtual void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
                       T* y) = 0;

  // The softmax cross-entropy of logits[samples, classes] for labels[samples] in [0, classes). The
  // target distribution is (1 - smoothing) at the label plus smoothing / classes everywhere.
  // `dlogits` is the gradient of the mean loss and may be null.
  virtual void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const T* logits,
                                   const int32_t* labels, double smoothing, T* dlogits,
                                   ClassificationResult* result) = 0;

  // The loss of a detector and its gradient. The formulas are in kernels/detection/ssd_loss.h.
  virtual int64_t SsdLossWorkspace(int64_t samples, int64_t num_anchors) const = 0;
  virtual void SsdLoss(const SsdLossArguments<T>& arguments, SsdLossResult* result,
                       const Workspace& workspace) = 0;

  // Convert between the network's number type and the host's float.
  virtual void ConvertFromFloat(int64_t size, const float* from, T* to) = 0;
  virtual void ConvertToFloat(int64_t size, const T* from, float* to) = 0;
  // Writes images[samples, input.height, input.width, input.channels], the network's input, from a
  // block of packed images (kernels/packed_image.h) that CheckPackedImages has accepted.
  virtual void SampleImages(const ImageInput& input, int64_t samples, const void* block,
                            T* images) = 0;

  // out[i] = 0.
  virtual void Zero(int64_t size, Parameter* out) = 0;
  // sum[i] += x[i].
  virtual void AddTo(int64_t size, const Parameter* x, Parameter* sum) = 0;
  // Writes what a worker pushes for the moving statistics of some batch norms. The span is only
  // read during the call.
  virtual void MovingStatistics(absl::Span<const PushedStatistics<Parameter>> norms) = 0;
  // Removes the initial mean 0 and variance 1 from moving statistics in which they still have the
  // weight `left` (0 <= left < 1):
  //   corrected_mean = mean / (1 - left)
  //   corrected_variance = max(variance - left, 0) / (1 - left)
  virtual void CorrectStatistics(int64_t channels, double left, const Parameter* mean,
                                 const Parameter* variance, Parameter* corrected_mean,
                                 Parameter* corrected_variance) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_OPERATORS_H_
