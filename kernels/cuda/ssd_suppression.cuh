// The list of an image's hardest anchors: sorting, and suppression of those whose predicted box
// overlaps a harder one's. For a whole block.
#ifndef PUSHPULL_KERNELS_CUDA_SSD_SUPPRESSION_CUH_
#define PUSHPULL_KERNELS_CUDA_SSD_SUPPRESSION_CUH_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/block_sum.cuh"
#include "kernels/detection/bounding_box.h"

namespace pushpull::PUSHPULL_CUDA {

// Ascending keys are falling losses, the lower index first among equals.
inline constexpr uint64_t kNoCandidate = ~uint64_t{0};

__device__ __forceinline__ uint64_t RankingKey(float loss, int index) {
  constexpr float kInfinity = INFINITY;
  if (loss == -kInfinity) return kNoCandidate;
  const unsigned bits = __float_as_uint(loss == 0.0f ? 0.0f : loss);  // one zero only
  const unsigned rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~rising) << 32 | static_cast<unsigned>(index);
}

__device__ __forceinline__ int IndexOfKey(uint64_t key) {
  return static_cast<int>(key & 0xffffffffu);
}

// A bitonic network; `size` is a power of two. The keys are there for all threads afterwards, and
// have to be before.
__device__ __forceinline__ void SortKeys(uint64_t* keys, int64_t size) {
  for (int64_t run = 2; run <= size; run *= 2) {
    for (int64_t stride = run / 2; stride > 0; stride /= 2) {
      for (int64_t i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const int64_t low = 2 * i - (i & (stride - 1)), high = low + stride;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) == ((low & run) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Boxes without a positive, finite area overlap nothing: -1.
__device__ __forceinline__ float UsableArea(const BoundingBox& box) {
  constexpr float kLargest = FLT_MAX;
  const float area = box.area();
  return area > 0.0f && area <= kLargest ? area : -1.0f;
}

// Which areas a box may have that overlaps one of this area by more than the threshold: an IoU is
// at most the ratio of the areas. The slack covers rounding.
struct AreaRange {
  float low, high;
  __device__ __forceinline__ bool Holds(float area) const { return area >= low && area <= high; }
};

__device__ __forceinline__ AreaRange OverlappingAreas(float area, float iou_threshold) {
  constexpr float kInfinity = INFINITY;
  if (area < 0.0f) return {kInfinity, -kInfinity};
  const float ratio = 0.998f * iou_threshold;
  if (!(ratio > 0.0f)) return {0.0f, kInfinity};
  return {ratio * area, area / ratio};
}

struct HardestList {
  int* indices;
  BoundingBox* boxes;
  float* areas;
};

// Of one round of the suppression, in shared memory: which candidates an earlier box takes out,
// bits by the warp that found it, and per candidate those of the round that it would take out.
struct SuppressionRound {
  unsigned taken_out[32];
  unsigned victims[kWarpLanes];
};

// Which lanes' candidates stay, given those that are out already: in their order each takes out its
// victims.
__device__ __forceinline__ unsigned Survivors(const SuppressionRound& round, unsigned alive) {
#pragma unroll
  for (int i = 0; i < kWarpLanes; ++i) {
    if (alive >> i & 1u) alive &= ~round.victims[i];
  }
  return alive;
}

// Goes through the sorted keys, a warp's worth of candidates at a time: all warps hold the same
// candidates, one per lane, and share out the boxes to compare them with. Returns the list's
// length, at most max_boxes; the list is there for all threads.
__device__ __forceinline__ int SuppressKeys(const uint64_t* keys, int64_t num_keys,
                                            const BoundingBox* predicted, float iou_threshold,
                                            int max_boxes, SuppressionRound* round,
                                            const HardestList& list) {
  const int lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
  const int warps = blockDim.x / kWarpLanes;
  int kept = 0;
  for (int64_t base = 0; base < num_keys && kept < max_boxes; base += kWarpLanes) {
    if (keys[base] == kNoCandidate) break;
    const uint64_t key = base + lane < num_keys ? keys[base + lane] : kNoCandidate;
    const bool exists = key != kNoCandidate;
    const BoundingBox box = exists ? predicted[IndexOfKey(key)] : BoundingBox();
    const float area = exists ? UsableArea(box) : -1.0f;
    const AreaRange range = OverlappingAreas(area, iou_threshold);
    bool out = !exists;
    for (int k = warp; k < kept && !out; k += warps) {
      out = range.Holds(list.areas[k]) && IntersectionOverUnion(box, list.boxes[k]) > iou_threshold;
    }
    const unsigned outs = __ballot_sync(kAllLanes, out);
    if (lane == 0) round->taken_out[warp] = outs;
    for (int i = warp; i < kWarpLanes; i += warps) {
      const uint64_t harder = base + i < num_keys ? keys[base + i] : kNoCandidate;
      bool victim = false;
      if (harder != kNoCandidate && i < lane) {
        const BoundingBox other = predicted[IndexOfKey(harder)];
        victim =
            range.Holds(UsableArea(other)) && IntersectionOverUnion(box, other) > iou_threshold;
      }
      const unsigned victims = __ballot_sync(kAllLanes, victim);
      if (lane == 0) round->victims[i] = victims;
    }
    __syncthreads();
    unsigned alive = kAllLanes;
    for (int w = 0; w < warps; ++w) alive &= ~round->taken_out[w];
    alive = Survivors(*round, alive);
    const int position = kept + __popc(alive & ((1u << lane) - 1u));
    if (warp == 0 && (alive >> lane & 1u) && position < max_boxes) {
      list.indices[position] = IndexOfKey(key);
      list.boxes[position] = box;
      list.areas[position] = area;
    }
    kept = min(kept + __popc(alive), max_boxes);
    __syncthreads();
  }
  return kept;
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_SSD_SUPPRESSION_CUH_
