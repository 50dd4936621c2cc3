// Softmax cross-entropy. A warp handles one sample; its lanes take every 32nd class. Exponentials
// are computed in float, sums in double.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/losses.h"
#include "kernels/cuda/numbers.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kLossWarps = 32;

struct SoftmaxSize {
  int64_t samples;
  int64_t classes;
  double smoothing;
};

// The largest logit of a row, where NaNs are ignored, and the sum of exp(logit - largest), which is
// NaN if a logit is. Every lane of the warp receives both.
struct RowDenominator {
  float largest;
  double denominator;
};

template <typename T>
__device__ __forceinline__ RowDenominator DenominatorOf(const T* row, int64_t classes) {
  const int lane = threadIdx.x % kWarpLanes;
  RowDenominator result = {__uint_as_float(0xff800000u), 0.0};  // minus infinity
  for (int64_t c = lane; c < classes; c += kWarpLanes) {
    result.largest = fmaxf(result.largest, ToFloat(row[c]));
  }
  result.largest = LaneMax(result.largest);
  for (int64_t c = lane; c < classes; c += kWarpLanes) {
    result.denominator += expf(ToFloat(row[c]) - result.largest);
  }
  result.denominator = LaneSum(result.denominator);
  return result;
}

// The gradient of one sample; a block is one warp. It reads the row three times: for the maximum,
// the sum and the result; the second and third time from the L1 cache. Nothing is in shared memory.
// For common sizes (some hundred samples of 1000 classes) it takes microseconds; latency is the
// bound.
template <typename T>
__global__ void __launch_bounds__(kWarpLanes)
    SoftmaxGradientKernel(SoftmaxSize size, const T* logits, const int32_t* labels, T* dlogits) {
  const int64_t sample = blockIdx.x;
  const T* const row = logits + sample * size.classes;
  T* const out = dlogits + sample * size.classes;
  const RowDenominator sums = DenominatorOf(row, size.classes);
  const double off_target = size.smoothing / static_cast<double>(size.classes);
  const double inverse = 1.0 / sums.denominator;
  for (int64_t c = threadIdx.x; c < size.classes; c += kWarpLanes) {
    const double probability = expf(ToFloat(row[c]) - sums.largest) * inverse;
    const double target = off_target + (c == labels[sample] ? 1.0 - size.smoothing : 0.0);
    out[c] = FromFloat<T>(
        static_cast<float>((probability - target) / static_cast<double>(size.samples)));
  }
}

struct SampleLoss {
  double loss;
  int rank;  // the number of other classes whose logit is not below that of the label
};

template <typename T>
__device__ __forceinline__ SampleLoss LossOf(const SoftmaxSize& size, const T* row, int32_t label) {
  const RowDenominator sums = DenominatorOf(row, size.classes);
  // A label that is not a class makes the loss NaN.
  const bool known = label >= 0 && label < size.classes;
  const float own = known ? ToFloat(row[label]) : __uint_as_float(0x7fc00000u);
  double sum = 0.0;
  int at_least = 0;
  for (int64_t c = threadIdx.x % kWarpLanes; c < size.classes; c += kWarpLanes) {
    const float logit = ToFloat(row[c]);
    sum += static_cast<double>(logit) - sums.largest;
    at_least += c != label && !(logit < own);
  }
  sum = LaneSum(sum);
  const double off_target = size.smoothing / static_cast<double>(size.classes);
  return {log(sums.denominator) -
              (1.0 - size.smoothing) * (static_cast<double>(own) - sums.largest) - off_target * sum,
          LaneSum(at_least)};
}

// The mean loss and the counts of the whole batch. There is one block: its 32 warps compute 32
// samples at a time, and thread 0 adds their losses in order, from shared memory, so the result is
// deterministic. Latency is the bound; a single block suffices since the work is small.
template <typename T>
__global__ void __launch_bounds__(kLossWarps* kWarpLanes)
    SoftmaxLossKernel(SoftmaxSize size, const T* logits, const int32_t* labels,
                      ClassificationResult* result) {
  SampleLoss* const losses = reinterpret_cast<SampleLoss*>(SharedBytes());
  const int warp = threadIdx.x / kWarpLanes;
  ClassificationResult total;
  for (int64_t first = 0; first < size.samples; first += kLossWarps) {
    const int64_t sample = first + warp;
    if (sample < size.samples) {
      const SampleLoss loss = LossOf(size, logits + sample * size.classes, labels[sample]);
      if (threadIdx.x % kWarpLanes == 0) losses[warp] = loss;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 0; w < kLossWarps && first + w < size.samples; ++w) {
        total.loss += losses[w].loss;
        total.top1 += losses[w].rank < 1;
        total.top5 += losses[w].rank < 5;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  if (size.samples > 0) total.loss /= static_cast<double>(size.samples);
  *result = total;
}

}  // namespace

template <typename T>
void SoftmaxCrossEntropy(Queue* queue, int64_t samples, int64_t classes, const T* logits,
                         const int32_t* labels, double smoothing, T* dlogits,
                         ClassificationResult* result) {
  const SoftmaxSize size = {samples, classes, smoothing};
  if (dlogits != nullptr) {
    Launch(queue, "SoftmaxGradient", {static_cast<unsigned>(samples), kWarpLanes},
           SoftmaxGradientKernel<T>, size, logits, labels, dlogits);
  }
  Launch(queue, "SoftmaxLoss", {1, kLossWarps * kWarpLanes, kLossWarps * sizeof(SampleLoss)},
         SoftmaxLossKernel<T>, size, logits, labels, result);
}

#define PUSHPULL_INSTANTIATE(T)                                                                    \
  template void SoftmaxCrossEntropy<T>(Queue*, int64_t, int64_t, const T*, const int32_t*, double, \
                                       T*, ClassificationResult*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
