// Chooses the anchors that count in the loss as hard_example_miner.h describes, with one block per
// image, and sums over the images.
// Tested by tests/kernels/cuda/ssd_loss_test.cc.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ssd_suppression.cuh"
#include "kernels/cuda/ssd_views.cuh"
#include "kernels/detection/ssd_loss.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int64_t kMaxSharedKeys = 4096;

// The shared memory of a block; the keys follow it if they are few.
struct MiningMemory {
  double sums[kWarps * kSsdSums];
  SuppressionRound round;
  int counts[kThreads];
};
static_assert(sizeof(MiningMemory) % sizeof(uint64_t) == 0, "keys follow");

// The arrays of the block's image, one entry per anchor.
struct ImageView {
  const int* matches;
  const double* classification_losses;
  const double* localization_losses;
  unsigned char* in_loss;
};

// Takes an anchor into the loss.
__device__ __forceinline__ void CountAnchor(const ImageView& image, int anchor, double* sums) {
  image.in_loss[anchor] = 1;
  sums[kClassificationLoss] += image.classification_losses[anchor];
  sums[kLocalizationLoss] += image.localization_losses[anchor];
  sums[kMinedPositives] += image.matches[anchor] >= 0;
  sums[kMinedNegatives] += image.matches[anchor] == kUnmatched;
}

// Makes the list of the hardest anchors and returns its length.
__device__ __forceinline__ int ListHardest(const SsdLossSettings& settings, int num_anchors,
                                           const ImageView& image, const BoundingBox* predicted,
                                           uint64_t* keys, int64_t num_keys,
                                           SuppressionRound* round, const HardestList& list) {
  for (int64_t i = threadIdx.x; i < num_keys; i += blockDim.x) {
    keys[i] = i < num_anchors
                  ? RankingKey(RankingLoss(settings.ranking, image.classification_losses[i],
                                           image.localization_losses[i]),
                               static_cast<int>(i))
                  : kNoCandidate;
  }
  __syncthreads();
  SortKeys(keys, num_keys);
  const int wanted = settings.miner.num_hard_examples;
  return SuppressKeys(keys, num_keys, predicted, settings.miner.iou_threshold,
                      wanted > 0 ? min(wanted, num_anchors) : num_anchors, round, list);
}

// Takes the anchors of the list into the loss, unmatched ones only up to the allowed number. Each
// thread handles a stretch of the list; the unmatched anchors of earlier stretches are counted
// first.
__device__ __forceinline__ void CountHardest(const HardExampleMinerSpec& miner,
                                             const ImageView& image, const int* hardest, int length,
                                             MiningMemory* memory, double* sums) {
  const int stretch = (length + kThreads - 1) / kThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * stretch, length);
  const int end = min(begin + stretch, length);
  const bool limited = miner.max_negatives_per_positive > 0;
  double positives[1] = {0.0};
  int negatives = 0;
  for (int i = begin; i < end; ++i) {
    positives[0] += image.matches[hardest[i]] >= 0;
    negatives += image.matches[hardest[i]] == kUnmatched;
  }
  memory->counts[threadIdx.x] = negatives;
  BlockSum<1>(positives, memory->sums);  // its barriers also publish the counts
  const int64_t max_negatives = MaxNegatives(miner, static_cast<int64_t>(positives[0]));
  negatives = 0;
  if (begin < end) {
    for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) negatives += memory->counts[t];
  }
  for (int i = begin; i < end; ++i) {
    const int match = image.matches[hardest[i]];
    negatives += match == kUnmatched;
    if (!limited || match >= 0 || negatives <= max_negatives ||
        MustShow(image.classification_losses[hardest[i]], image.localization_losses[hardest[i]])) {
      CountAnchor(image, hardest[i], sums);
    }
  }
}

// One block of 512 threads handles one image: it counts its matches, sorts the anchors by loss,
// suppresses overlapping ones (ssd_suppression.cuh), marks the anchors in the loss and sums their
// losses in double. Up to 4096 keys are sorted in shared memory (32 KiB), more of them in device
// memory. Shared memory also holds the sums of the warps, a round of the suppression and a count
// per thread. The barriers of the sort and of the suppression's rounds are the likely bound, since
// only as many multiprocessors work as there are images.
__global__ void __launch_bounds__(kThreads)
    MiningKernel(const SsdLossSettings settings, const SsdBatch batch, const SsdScratch scratch,
                 bool keys_in_shared) {
  MiningMemory* const memory = reinterpret_cast<MiningMemory*>(SharedBytes());
  const int64_t sample = blockIdx.x, row = sample * batch.num_anchors;
  const LabeledBox* const objects = batch.objects + batch.first_object[sample];
  const ImageView image = {scratch.matches + row, scratch.classification_losses + row,
                           scratch.localization_losses + row, scratch.in_loss + row};
  double sums[kSsdSums] = {};
  for (int a = threadIdx.x; a < batch.num_anchors; a += blockDim.x) {
    const int match = image.matches[a];
    sums[kBoxWeight] += RoleOf(settings.background, match, objects).box_weight;
    sums[kMatched] += match >= 0;
    sums[kIgnoredAnchors] += match == kIgnored;
    image.in_loss[a] = 0;
    if (!settings.mines) CountAnchor(image, a, sums);
  }
  if (settings.mines) {
    uint64_t* const keys = keys_in_shared ? reinterpret_cast<uint64_t*>(memory + 1)
                                          : scratch.keys + sample * scratch.key_stride;
    const HardestList list = {scratch.hardest + row, scratch.hardest_boxes + row,
                              scratch.hardest_areas + row};
    const int length = ListHardest(settings, batch.num_anchors, image, scratch.predicted + row,
                                   keys, scratch.key_stride, &memory->round, list);
    CountHardest(settings.miner, image, list.indices, length, memory, sums);
  }
  __syncthreads();
  BlockSum<kSsdSums>(sums, memory->sums);
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int i = 0; i < kSsdSums; ++i) scratch.sums[sample * kSsdSums + i] = sums[i];
}

// Sums over the images and writes the result and the factors of the gradient. One warp: lane i adds
// sum i, image by image in order, so the result is deterministic. Bound by the latency of that
// serial sum, a few microseconds.
__global__ void __launch_bounds__(kWarpLanes)
    ImageSumKernel(const SsdLossSettings settings, int samples, const SsdScratch scratch,
                   SsdLossResult* result) {
  double own = 0.0;
  if (threadIdx.x < kSsdSums) {
    for (int s = 0; s < samples; ++s) own += scratch.sums[int64_t{s} * kSsdSums + threadIdx.x];
  }
  double sums[kSsdSums];
#pragma unroll
  for (int i = 0; i < kSsdSums; ++i) sums[i] = __shfl_sync(kAllLanes, own, i);
  if (threadIdx.x != 0) return;
  const double weight = sums[kBoxWeight] < 1.0 ? 1.0 : sums[kBoxWeight];
  const double normalizer = settings.normalize_by_matches ? weight : 1.0;
  scratch.factors[0] = settings.classification_weight / normalizer;
  scratch.factors[1] = settings.localization_weight / normalizer;
  result->classification_loss = sums[kClassificationLoss] * scratch.factors[0];
  result->localization_loss = sums[kLocalizationLoss] * scratch.factors[1];
  result->matched_anchors = static_cast<int64_t>(sums[kMatched]);
  result->ignored_anchors = static_cast<int64_t>(sums[kIgnoredAnchors]);
  result->mined_positives = static_cast<int64_t>(sums[kMinedPositives]);
  result->mined_negatives = static_cast<int64_t>(sums[kMinedNegatives]);
}

}  // namespace

void MineSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                    const SsdScratch& scratch) {
  const bool keys_in_shared = scratch.key_stride <= kMaxSharedKeys;
  const size_t key_bytes =
      settings.mines && keys_in_shared ? scratch.key_stride * sizeof(uint64_t) : 0;
  Launch(queue, "SsdMining",
         {static_cast<unsigned>(batch.samples), kThreads, sizeof(MiningMemory) + key_bytes},
         MiningKernel, settings, batch, scratch, keys_in_shared);
}

void SumSsdImages(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                  const SsdScratch& scratch, SsdLossResult* result) {
  Launch(queue, "SsdImageSums", {1, kWarpLanes}, ImageSumKernel, settings, batch.samples, scratch,
         result);
}

}  // namespace pushpull::PUSHPULL_CUDA
