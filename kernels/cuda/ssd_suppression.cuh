// Makes the list of an image's hardest anchors: sorts them, and suppresses those whose predicted
// box overlaps that of a harder one. All threads of a block call these functions together.
#ifndef PUSHPULL_KERNELS_CUDA_SSD_SUPPRESSION_CUH_
#define PUSHPULL_KERNELS_CUDA_SSD_SUPPRESSION_CUH_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/block_sum.cuh"
#include "kernels/detection/bounding_box.h"

namespace pushpull::PUSHPULL_CUDA {

// Candidates are sorted by ascending 64-bit keys. The upper half is the loss, mapped so that it
// descends; the lower half is the index, so that the lower index comes first among equals.
inline constexpr uint64_t kNoCandidate = ~uint64_t{0};

// A loss of minus infinity makes no candidate. A positive float's bits grow with the float and a
// negative one's fall, hence the flips.
__device__ __forceinline__ uint64_t RankingKey(float loss, int index) {
  constexpr float kInfinity = INFINITY;
  if (loss == -kInfinity) return kNoCandidate;
  const unsigned bits = __float_as_uint(loss == 0.0f ? 0.0f : loss);  // -0 and 0 are equal
  const unsigned rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~rising) << 32 | static_cast<unsigned>(index);
}

__device__ __forceinline__ int IndexOfKey(uint64_t key) {
  return static_cast<int>(key & 0xffffffffu);
}

// Sorts `size` keys, a power of two, in shared or device memory by a bitonic network. In each of
// log2(size) * (log2(size) + 1) / 2 rounds every thread compares pairs of keys a stride apart, then
// the block meets at a barrier: 66 rounds for 2048 keys. The barriers and the latency of the memory
// are the likely bounds. The keys must be visible to all threads before, and are so afterwards.
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

// The area of a box, or -1 if it is not positive and finite: such a box overlaps nothing.
__device__ __forceinline__ float UsableArea(const BoundingBox& box) {
  constexpr float kLargest = FLT_MAX;
  const float area = box.area();
  return area > 0.0f && area <= kLargest ? area : -1.0f;
}

// The range of areas that a box can have if its IoU with a box of a given area is above the
// threshold: an IoU is at most the ratio of the smaller to the larger area. A comparison with the
// range saves most IoUs. The factor 0.998 covers rounding.
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

// The list of kept anchors with their boxes and areas, in device memory.
struct HardestList {
  int* indices;
  BoundingBox* boxes;
  float* areas;
};

// One round of the suppression, for 32 candidates, in shared memory. Bit l stands for candidate l.
struct SuppressionRound {
  // For each warp, the candidates that overlap one of the kept boxes that the warp compared.
  unsigned taken_out[32];
  // For each candidate, the later candidates of the round that overlap it.
  unsigned victims[kWarpLanes];
};

// Returns the candidates that stay, given those still alive after the comparison with kept boxes.
// In order, each one that stays takes out its victims.
__device__ __forceinline__ unsigned Survivors(const SuppressionRound& round, unsigned alive) {
#pragma unroll
  for (int i = 0; i < kWarpLanes; ++i) {
    if (alive >> i & 1u) alive &= ~round.victims[i];
  }
  return alive;
}

// Goes through the sorted keys, 32 candidates per round. All warps hold the same candidates, one
// per lane, and divide the work: warp w compares them with the kept boxes w, w + warps, ... and
// with the candidates w, w + warps, ... of the round. Ballots turn the answers into bit masks, from
// which every thread finds the survivors by itself. So the greedy algorithm, which is serial by
// nature, needs two barriers per 32 candidates. Latency is the likely bound, since an image has one
// block. Returns the length of the list, at most max_boxes; the list is visible to all threads.
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
