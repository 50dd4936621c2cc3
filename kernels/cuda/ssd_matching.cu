// Matches anchors with objects as target_assigner.h describes, with one block per image.
// Tested by tests/kernels/cuda/ssd_loss_test.cc.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ssd_views.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kThreads = 256;
constexpr int kNotForced = 0x7fffffff;

// Returns the anchor that overlaps the box most, the first among equals. The lanes of a warp share
// the anchors; every lane receives the result.
__device__ __forceinline__ int BestAnchor(const BoundingBox& box, const BoundingBox* anchors,
                                          int num_anchors) {
  int best = 0;
  float best_overlap = -1.0f;
  for (int a = threadIdx.x % kWarpLanes; a < num_anchors; a += kWarpLanes) {
    const float overlap = IntersectionOverUnion(box, anchors[a]);
    if (overlap > best_overlap) {
      best = a;
      best_overlap = overlap;
    }
  }
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    const float other_overlap = __shfl_xor_sync(kAllLanes, best_overlap, offset);
    const int other = __shfl_xor_sync(kAllLanes, best, offset);
    if (other_overlap > best_overlap || (other_overlap == best_overlap && other < best)) {
      best = other;
      best_overlap = other_overlap;
    }
  }
  return best;
}

// Returns the match of one anchor by its best overlap, the first box among equals.
__device__ __forceinline__ int BestMatch(const ArgMaxMatcherSpec& matcher,
                                         const BoundingBox& anchor, const LabeledBox* boxes,
                                         int num_boxes) {
  if (num_boxes == 0) return kUnmatched;
  int best = 0;
  float best_overlap = -1.0f;
  for (int b = 0; b < num_boxes; ++b) {
    const float overlap = IntersectionOverUnion(boxes[b].box, anchor);
    if (overlap > best_overlap) {
      best = b;
      best_overlap = overlap;
    }
  }
  return JudgeOverlap(matcher, best, best_overlap);
}

// One block matches the anchors of one image, in three steps with barriers between them: mark all
// anchors as not forced; give each box of a weight above 0 the anchor it overlaps most, a warp per
// box; match all other anchors by threshold, a thread per anchor that goes over all boxes. Nothing
// is in shared memory: the marks are in the output, anchors and boxes come from the caches. The
// overlaps, up to 2 * anchors * boxes of them, are the likely bound; with few images most
// multiprocessors are idle.
__global__ void __launch_bounds__(kThreads)
    MatchKernel(ArgMaxMatcherSpec matcher, SsdBatch batch, int* all_matches) {
  int* const matches = all_matches + int64_t{blockIdx.x} * batch.num_anchors;
  const int first = batch.first_object[blockIdx.x];
  const int num_boxes = batch.first_object[blockIdx.x + 1] - first;
  const LabeledBox* const boxes = batch.objects + first;
  for (int a = threadIdx.x; a < batch.num_anchors; a += blockDim.x) matches[a] = kNotForced;
  __syncthreads();
  if (matcher.force_match_for_each_row) {
    const int warps = blockDim.x / kWarpLanes;
    for (int b = threadIdx.x / kWarpLanes; b < num_boxes; b += warps) {
      if (!MayForce(boxes[b])) continue;  // the lanes of a warp have the same box
      const int best = BestAnchor(boxes[b].box, batch.anchors, batch.num_anchors);
      // If several boxes want one anchor, the first box gets it.
      if (threadIdx.x % kWarpLanes == 0) atomicMin(&matches[best], b);
    }
  }
  __syncthreads();
  for (int a = threadIdx.x; a < batch.num_anchors; a += blockDim.x) {
    if (matches[a] == kNotForced) {
      matches[a] = BestMatch(matcher, batch.anchors[a], boxes, num_boxes);
    }
  }
}

}  // namespace

void MatchSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                     const SsdScratch& scratch) {
  if (batch.num_anchors == 0) return;
  Launch(queue, "SsdMatching", {static_cast<unsigned>(batch.samples), kThreads}, MatchKernel,
         settings.matcher, batch, scratch.matches);
}

}  // namespace pushpull::PUSHPULL_CUDA
