// Softmax cross-entropy. A warp handles one sample; its lanes take every 32nd class. Exponentials
// are computed in float, sums in double.
#include <algorithm>

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/losses.h"
#include "kernels/cuda/numbers.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kLossWarps = 4;

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

// Writes the gradient of one sample.
template <typename T>
__device__ __forceinline__ void WriteGradient(const SoftmaxSize& size, const RowDenominator& sums,
                                              const T* row, int32_t label, T* out) {
  const double off_target = size.smoothing / static_cast<double>(size.classes);
  const double inverse = 1.0 / sums.denominator;
  for (int64_t c = threadIdx.x % kWarpLanes; c < size.classes; c += kWarpLanes) {
    const double probability = expf(ToFloat(row[c]) - sums.largest) * inverse;
    const double target = off_target + (c == label ? 1.0 - size.smoothing : 0.0);
    out[c] = FromFloat<T>(
        static_cast<float>((probability - target) / static_cast<double>(size.samples)));
  }
}

struct SampleLoss {
  double loss;
  int64_t rank;  // the number of other classes whose logit is not below that of the label
};

template <typename T>
__device__ __forceinline__ SampleLoss LossOf(const SoftmaxSize& size, const RowDenominator& sums,
                                             const T* row, int32_t label) {
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
  double loss =
      log(sums.denominator) - (1.0 - size.smoothing) * (static_cast<double>(own) - sums.largest);
  // Without smoothing, off_target is 0. If a logit is minus infinity, so is the sum, and the
  // product of the two would be a NaN.
  if (off_target != 0.0) loss -= off_target * sum;
  return {loss, LaneSum(at_least)};
}

// The samples of one launch.
constexpr int64_t kSamplesPerLaunch = kScratchBytes / sizeof(SampleLoss);

struct SoftmaxRange {
  int64_t first, end;
  SampleLoss* losses;  // [end - first], memory of the queue
  unsigned* arrivals;
};

// The gradients, unless dlogits is null, and the losses of the range's samples, and their sum. A
// block has four warps with one sample each. It reads a row four times: for the maximum, the sum,
// the gradient and the loss; all but the first time from the L1 cache. The last block adds all
// losses in the order of the samples to those of the ranges before, so the result is deterministic.
// For common sizes (some hundred samples of 1000 classes) this takes microseconds; latency is the
// bound. Shared memory holds the losses, SampleLoss [end - first].
template <typename T>
__global__ void __launch_bounds__(kLossWarps* kWarpLanes)
    SoftmaxKernel(SoftmaxSize size, SoftmaxRange range, const T* logits, const int32_t* labels,
                  T* dlogits, ClassificationResult* result) {
  SampleLoss* const losses = reinterpret_cast<SampleLoss*>(SharedBytes());
  const int64_t sample = range.first + int64_t{blockIdx.x} * kLossWarps + threadIdx.x / kWarpLanes;
  if (sample < range.end) {
    const int64_t offset = sample * size.classes;
    const RowDenominator sums = DenominatorOf(logits + offset, size.classes);
    const int32_t label = labels[sample];
    if (dlogits != nullptr) {
      WriteGradient(size, sums, logits + offset, label, dlogits + offset);
    }
    const SampleLoss loss = LossOf(size, sums, logits + offset, label);
    if (threadIdx.x % kWarpLanes == 0) range.losses[sample - range.first] = loss;
  }
  if (!ArrivesLast(range.arrivals, gridDim.x, reinterpret_cast<unsigned*>(SharedBytes()))) return;
  __syncthreads();  // the losses take the place of the flag
  for (int64_t s = threadIdx.x; s < range.end - range.first; s += blockDim.x) {
    losses[s].loss = __ldcg(&range.losses[s].loss);
    losses[s].rank = __ldcg(&range.losses[s].rank);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  ClassificationResult total;
  if (range.first > 0) total = *result;
  for (int64_t s = 0; s < range.end - range.first; ++s) {
    total.loss += losses[s].loss;
    total.top1 += losses[s].rank < 1;
    total.top5 += losses[s].rank < 5;
  }
  if (size.samples > 0 && range.end == size.samples) {
    total.loss /= static_cast<double>(size.samples);
  }
  *result = total;
}

}  // namespace

template <typename T>
void SoftmaxCrossEntropy(Queue* queue, int64_t samples, int64_t classes, const T* logits,
                         const int32_t* labels, double smoothing, T* dlogits,
                         ClassificationResult* result) {
  SoftmaxRange range = {0, 0, static_cast<SampleLoss*>(queue->scratch), queue->arrivals};
  do {
    range.first = range.end;
    range.end = std::min(samples, range.first + kSamplesPerLaunch);
    const int64_t count = range.end - range.first;
    const auto blocks = static_cast<unsigned>((count + kLossWarps - 1) / kLossWarps);
    Launch(queue, "SoftmaxCrossEntropy",
           {std::max(blocks, 1u), kLossWarps * kWarpLanes,
            std::max<int64_t>(count, 1) * sizeof(SampleLoss)},
           SoftmaxKernel<T>, SoftmaxSize{samples, classes, smoothing}, range, logits, labels,
           dlogits, result);
  } while (range.end < samples);
}

#define PUSHPULL_INSTANTIATE(T)                                                                    \
  template void SoftmaxCrossEntropy<T>(Queue*, int64_t, int64_t, const T*, const int32_t*, double, \
                                       T*, ClassificationResult*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
