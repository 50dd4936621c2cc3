// The operators that the fast and the reference operators of the CPU share: losses, gathers,
// images, conversions and bookkeeping. Losses, gathers and images run on all threads of the fast
// operators, which also have a conversion to Bfloat16 of their own; the others run on the calling
// thread, since their share of a step is negligible.
#ifndef PUSHPULL_KERNELS_CPU_HOST_OPERATORS_H_
#define PUSHPULL_KERNELS_CPU_HOST_OPERATORS_H_

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"

#include "kernels/gather/host_gather.h"
#include "kernels/gather/numbers.h"
#include "kernels/operators.h"
#include "kernels/softmax_cross_entropy.h"

namespace pushpull {

// T is float, double or Bfloat16.
template <typename T>
class HostOperators : public Operators<T> {
 public:
  using Parameter = ParameterOf<T>;

  void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const T* logits, const int32_t* labels,
                           double smoothing, T* dlogits, ClassificationResult* result) override {
    *result =
        SoftmaxCrossEntropyOnCpu(samples, classes, logits, labels, smoothing, dlogits, Loop());
  }

  // No workspace: the loss allocates its memory itself, since what it needs differs by image.
  int64_t SsdLossWorkspace(int64_t, int64_t) const override { return 0; }
  void SsdLoss(const SsdLossArguments<T>& arguments, SsdLossResult* result,
               const Workspace&) override {
    *result = SsdLossOnCpu<T>(arguments, Loop());
  }

  void Run(const Gather<T>& gather) override { RunOnHost<T>(gather, Loop()); }

  void ConvertFromFloat(int64_t size, const float* from, T* to) override {
    for (int64_t i = 0; i < size; ++i) gather::Narrow(gather::WideOf<T>(from[i]), to + i);
  }
  void ConvertToFloat(int64_t size, const T* from, float* to) override {
    std::transform(from, from + size, to,
                   [](T value) { return static_cast<float>(gather::Widen(value)); });
  }

  void SampleImages(const ImageInput& input, int64_t samples, const void* block,
                    T* images) override {
    ParallelFor(samples, [&](int64_t s) {
      if (input.channels == 3) {
        SampleOne<3>(input, s, block, images);
      } else {
        SampleOne<1>(input, s, block, images);
      }
    });
  }

  void Zero(int64_t size, Parameter* out) override { std::fill_n(out, size, Parameter(0)); }
  void AddTo(int64_t size, const Parameter* x, Parameter* sum) override {
    for (int64_t i = 0; i < size; ++i) sum[i] += x[i];
  }

  void MovingStatistics(absl::Span<const PushedStatistics<Parameter>> norms) override {
    for (const PushedStatistics<Parameter>& norm : norms) {
      const double unbias =
          static_cast<double>(norm.rows) / static_cast<double>(std::max<int64_t>(norm.rows - 1, 1));
      for (int64_t c = 0; c < norm.channels; ++c) {
        norm.pushed_mean[c] = norm.mean[c];
        norm.pushed_variance[c] = static_cast<Parameter>(norm.variance[c] * unbias);
      }
    }
  }

  void CorrectStatistics(int64_t channels, double left, const Parameter* mean,
                         const Parameter* variance, Parameter* corrected_mean,
                         Parameter* corrected_variance) override {
    const double gathered = 1.0 - left;
    for (int64_t c = 0; c < channels; ++c) {
      corrected_mean[c] = static_cast<Parameter>(mean[c] / gathered);
      corrected_variance[c] =
          static_cast<Parameter>(std::max((variance[c] - left) / gathered, 0.0));
    }
  }

 protected:
  // Runs body(0) ... body(count - 1) in any order and blocks until all are done.
  virtual void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) = 0;

 private:
  auto Loop() {
    return
        [this](int64_t count, absl::FunctionRef<void(int64_t)> body) { ParallelFor(count, body); };
  }

  template <int kChannels>
  static void SampleOne(const ImageInput& input, int64_t sample, const void* block, T* images) {
    const PackedImage& image = static_cast<const PackedImage*>(block)[sample];
    T* out = images + sample * input.height * input.width * kChannels;
    for (int32_t y = 0; y < input.height; ++y) {
      for (int32_t x = 0; x < input.width; ++x, out += kChannels) {
        float values[kChannels];
        SampleImage<kChannels>(input, image, block, y, x, values);
        for (int c = 0; c < kChannels; ++c) {
          gather::Narrow(gather::WideOf<T>(values[c]), out + c);
        }
      }
    }
  }
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_HOST_OPERATORS_H_
