// What the kernels of a detector's loss work on, by value; and the launchers of its stages, which
// are to run in this order.
#ifndef PUSHPULL_KERNELS_CUDA_SSD_VIEWS_CUH_
#define PUSHPULL_KERNELS_CUDA_SSD_VIEWS_CUH_

#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/detection/loss_formulas.h"
#include "kernels/detection/mining_formulas.h"
#include "kernels/detection/target_formulas.h"

namespace pushpull {
struct SsdLossResult;
}

namespace pushpull::PUSHPULL_CUDA {

// A DetectionSpec's part in the loss.
struct SsdLossSettings {
  int columns = 0;  // of the scores
  FasterRcnnBoxCoderSpec box_coder;
  ArgMaxMatcherSpec matcher;
  BackgroundRule background;
  LossFormula formula = {};
  bool mines = false;
  HardExampleMinerSpec miner;
  RankingWeights ranking = {};
  double classification_weight = 1.0;
  double localization_weight = 1.0;  // of one entry of a box code with normalization by its size
  bool normalize_by_matches = true;
};

struct SsdBatch {
  int samples = 0;
  int num_anchors = 0;
  const BoundingBox* anchors = nullptr;
  const LabeledBox* objects = nullptr;
  const int32_t* first_object = nullptr;
};

inline constexpr int kMaxSsdHeads = 16;

template <typename T>
struct SsdHeadView {
  int first_anchor;
  int num_anchors;
  const T* box_codes;
  const T* class_scores;
  T* dbox_codes;
  T* dclass_scores;
};

template <typename T>
struct SsdHeads {
  int count = 0;
  SsdHeadView<T> heads[kMaxSsdHeads] = {};
};

// Of one anchor of one image.
template <typename T>
struct AnchorOutputs {
  const T* code;
  const T* scores;
  T* dcode;  // null: not wanted
  T* dscores;
};

template <typename T>
__device__ __forceinline__ AnchorOutputs<T> OutputsOf(const SsdHeads<T>& heads, int columns,
                                                      int64_t sample, int anchor) {
  int h = 0;
  while (h + 1 < heads.count && anchor >= heads.heads[h + 1].first_anchor) ++h;
  const SsdHeadView<T>& head = heads.heads[h];
  const int64_t row = sample * head.num_anchors + (anchor - head.first_anchor);
  return {head.box_codes + row * kBoxCodeSize, head.class_scores + row * columns,
          head.dbox_codes == nullptr ? nullptr : head.dbox_codes + row * kBoxCodeSize,
          head.dclass_scores == nullptr ? nullptr : head.dclass_scores + row * columns};
}

// Sums over an image, or over the batch.
enum SsdSum {
  kClassificationLoss,
  kLocalizationLoss,
  kBoxWeight,
  kMatched,
  kIgnoredAnchors,
  kMinedPositives,
  kMinedNegatives,
  kSsdSums
};

// Between the stages; the arrays have a row per sample, of num_anchors entries unless said.
struct SsdScratch {
  int* matches = nullptr;
  double* classification_losses = nullptr;  // weighted
  double* localization_losses = nullptr;
  BoundingBox* predicted = nullptr;  // only with a miner
  uint64_t* keys = nullptr;          // [key_stride], a power of two
  int64_t key_stride = 0;
  int* hardest = nullptr;  // the list of hard_example_miner.h
  BoundingBox* hardest_boxes = nullptr;
  float* hardest_areas = nullptr;  // -1 where a box overlaps nothing
  unsigned char* in_loss = nullptr;
  double* sums = nullptr;  // [kSsdSums]
  // Of the batch: what a classification and a localization loss counts in the gradient.
  double* factors = nullptr;
};

// Writes matches.
void MatchSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                     const SsdScratch& scratch);

// Writes both losses of every anchor, and predicted.
template <typename T>
void ComputeSsdAnchorLosses(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                            const SsdScratch& scratch, const SsdHeads<T>& heads);

// Writes in_loss and sums.
void MineSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                    const SsdScratch& scratch);

// Writes factors.
void SumSsdImages(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                  const SsdScratch& scratch, SsdLossResult* result);

template <typename T>
void WriteSsdGradients(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                       const SsdScratch& scratch, const SsdHeads<T>& heads);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_SSD_VIEWS_CUH_
