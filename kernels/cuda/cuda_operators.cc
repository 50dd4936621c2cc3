// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/cuda_operators.h"

#include <limits>
#include <optional>

#include "glog/logging.h"

#include "kernels/cuda/convolution.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/losses.h"
#include "kernels/device.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// The kernels of dense convolutions number the pixels of a batch in an int, and look some thousand
// pixels ahead.
bool CanNumberPixels(const ConvolutionShape& shape) {
  constexpr int64_t kMaxPixels = std::numeric_limits<int>::max() - (1 << 20);
  return shape.in.rows() <= kMaxPixels && shape.out().rows() <= kMaxPixels;
}

template <typename T>
class CudaOperators final : public Operators<T> {
 public:
  CudaOperators(Queue* queue, ChoiceContext* libraries) : queue_(queue) {
    if (libraries != nullptr) choice_.emplace(queue, libraries);
  }

  // A convolution of too many pixels needs none, since it only sets the queue's error.
  int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const override {
    if (!CanNumberPixels(shape)) return 0;
    return choice_.has_value() ? choice_->WorkspaceBytes(shape)
                               : ConvolutionWorkspaceBytes<T>(*queue_, shape);
  }
  int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const override {
    return DepthwiseWorkspaceBytes(*queue_, shape);
  }
  int64_t PoolWorkspace(const Shape& shape) const override {
    return PoolWorkspaceBytes(*queue_, shape);
  }
  int64_t SsdLossWorkspace(int64_t samples, int64_t num_anchors) const override {
    return SsdLossWorkspaceBytes(samples, num_anchors);
  }

  void Apply(const Lazy<T>& x, T* out) override { ApplyLazy(queue_, x, out); }

  void Convolution(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                   const float* bias, T* y, const StatisticsOut<T>& statistics,
                   const Workspace& workspace) override {
    if (RefusesPixels(shape)) return;
    CheckWorkspace(workspace, ConvolutionWorkspace(shape));
    if (choice_.has_value()) {
      choice_->Forward(shape, x, weights, bias, y, statistics, workspace.data);
    } else {
      ConvolutionForward(queue_, shape, x, weights, bias, y, statistics, workspace.data);
    }
  }

  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                           const OutputGradient<T>& dy, float* dweights, float* dbias,
                           const InputGradient<T>& dx, const Workspace& workspace) override {
    if (RefusesPixels(shape)) return;
    CheckWorkspace(workspace, ConvolutionWorkspace(shape));
    if (choice_.has_value()) {
      choice_->Backward(shape, x, weights, dy, dweights, dbias, dx, workspace.data);
    } else {
      PUSHPULL_CUDA::ConvolutionBackward(queue_, shape, x, weights, dy, dweights, dbias, dx,
                                         workspace.data);
    }
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                            T* y, const StatisticsOut<T>& statistics,
                            const Workspace& workspace) override {
    CheckWorkspace(workspace, DepthwiseWorkspace(shape));
    DepthwiseForward(queue_, shape, x, weights, y, statistics, workspace.data);
  }

  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const float* weights, const OutputGradient<T>& dy,
                                    float* dweights, const InputGradient<T>& dx,
                                    const Workspace& workspace) override {
    CheckWorkspace(workspace, DepthwiseWorkspace(shape));
    DepthwiseBackward(queue_, shape, x, weights, dy, dweights, dx, workspace.data);
  }

  void GlobalAveragePool(const Lazy<T>& x, T* y) override { PoolForward(queue_, x, y); }

  void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                 const Workspace& workspace) override {
    if (dx.dz == nullptr) return;
    CheckWorkspace(workspace, PoolWorkspace(x.shape));
    PoolBackward(queue_, x, dy, dx, workspace.data);
  }

  void Run(const Gather<T>& gather) override { RunGather(queue_, gather); }

  void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
               T* y) override {
    DropEntries(queue_, size, x, rate, seed, salt, y);
  }

  void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const T* logits, const int32_t* labels,
                           double smoothing, T* dlogits, ClassificationResult* result) override {
    PUSHPULL_CUDA::SoftmaxCrossEntropy(queue_, samples, classes, logits, labels, smoothing, dlogits,
                                       result);
  }

  void SsdLoss(const SsdLossArguments<T>& arguments, SsdLossResult* result,
               const Workspace& workspace) override {
    CheckWorkspace(workspace, SsdLossWorkspace(arguments.samples, arguments.num_anchors));
    PUSHPULL_CUDA::SsdLoss(queue_, arguments, result, workspace.data);
  }

  void ConvertFromFloat(int64_t size, const float* from, T* to) override {
    PUSHPULL_CUDA::ConvertFromFloat(queue_, size, from, to);
  }
  void ConvertToFloat(int64_t size, const T* from, float* to) override {
    PUSHPULL_CUDA::ConvertToFloat(queue_, size, from, to);
  }
  void SampleImages(const ImageInput& input, int64_t samples, const void* block,
                    T* images) override {
    CHECK(input.channels == 1 || input.channels == 3) << input.channels;
    CHECK_LE(samples, kMaxDeviceSamples);
    PUSHPULL_CUDA::SampleImages(queue_, input, samples, block, images);
  }
  void Zero(int64_t size, float* out) override { PUSHPULL_CUDA::Zero(queue_, size, out); }
  void AddTo(int64_t size, const float* x, float* sum) override {
    PUSHPULL_CUDA::AddTo(queue_, size, x, sum);
  }
  void MovingStatistics(absl::Span<const PushedStatistics<float>> norms) override {
    PUSHPULL_CUDA::MovingStatistics(queue_, norms);
  }
  void CorrectStatistics(int64_t channels, double left, const float* mean, const float* variance,
                         float* corrected_mean, float* corrected_variance) override {
    PUSHPULL_CUDA::CorrectStatistics(queue_, channels, left, mean, variance, corrected_mean,
                                     corrected_variance);
  }

 private:
  bool RefusesPixels(const ConvolutionShape& shape) {
    if (CanNumberPixels(shape)) return false;
    queue_->Note(cudaErrorInvalidValue, "convolution of about 2^31 or more pixels in one batch");
    return true;
  }
  static void CheckWorkspace(const Workspace& workspace, int64_t needed) {
    CHECK_GE(workspace.bytes, needed);
  }

  Queue* const queue_;
  std::optional<ConvolutionChoice<T>> choice_;  // with libraries only
};

}  // namespace

template <typename T>
std::unique_ptr<Operators<T>> MakeCudaOperators(Queue* queue, ChoiceContext* libraries) {
  return std::make_unique<CudaOperators<T>>(queue, libraries);
}

template std::unique_ptr<Operators<float>> MakeCudaOperators<float>(Queue*, ChoiceContext*);
template std::unique_ptr<Operators<Bfloat16>> MakeCudaOperators<Bfloat16>(Queue*, ChoiceContext*);

}  // namespace pushpull::PUSHPULL_CUDA
