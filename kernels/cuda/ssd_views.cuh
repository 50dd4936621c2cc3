// The operands of the kernels of a detector's loss, which are passed by value, and the launchers of
// its five stages, which must be queued in the order below.
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

// What the kernels need of a DetectionSpec.
struct SsdLossSettings {
  int columns = 0;  // of the scores: the classes and the background
  FasterRcnnBoxCoderSpec box_coder;
  ArgMaxMatcherSpec matcher;
  BackgroundRule background;
  LossFormula formula = {};
  bool mines = false;
  HardExampleMinerSpec miner;
  RankingWeights ranking = {};
  double classification_weight = 1.0;
  double localization_weight = 1.0;  // divided by 4 with normalize_loc_loss_by_codesize
  bool normalize_by_matches = true;
};

// As in SsdLossArguments.
struct SsdBatch {
  int samples = 0;
  int num_anchors = 0;
  const BoundingBox* anchors = nullptr;
  const LabeledBox* objects = nullptr;
  const int32_t* first_object = nullptr;
};

inline constexpr int kMaxSsdHeads = 16;

// As SsdHeadTensors, with the index of the head's first anchor.
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

// The outputs of the network for one anchor of one image, and where their gradients go.
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

// The sums over the anchors of an image. kBoxWeight, kMatched and kIgnoredAnchors run over all
// anchors, the others over those in the loss.
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

// What the stages hand on to each other, in the workspace. The arrays have a row per sample with
// num_anchors entries unless a comment says otherwise.
struct SsdScratch {
  int* matches = nullptr;                   // the box of the anchor, kUnmatched or kIgnored
  double* classification_losses = nullptr;  // weighted by the anchor's weight, as the next
  double* localization_losses = nullptr;
  BoundingBox* predicted = nullptr;  // only with a miner
  uint64_t* keys = nullptr;          // rows of key_stride entries, a power of two
  int64_t key_stride = 0;
  int* hardest = nullptr;  // the list that hard_example_miner.h describes
  BoundingBox* hardest_boxes = nullptr;
  float* hardest_areas = nullptr;  // -1 if a box overlaps nothing
  unsigned char* in_loss = nullptr;
  double* sums = nullptr;  // rows of kSsdSums entries
  // Two numbers for the whole batch: the factors of the classification and of the localization
  // loss.
  double* factors = nullptr;
};

// Stage 1: writes `matches`.
void MatchSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                     const SsdScratch& scratch);

// Stage 2: writes both losses of every anchor, and `predicted`.
template <typename T>
void ComputeSsdAnchorLosses(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                            const SsdScratch& scratch, const SsdHeads<T>& heads);

// Stage 3: writes `in_loss` and `sums`.
void MineSsdAnchors(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                    const SsdScratch& scratch);

// Stage 4: writes `factors` and `result`.
void SumSsdImages(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                  const SsdScratch& scratch, SsdLossResult* result);

// Stage 5: writes dbox_codes and dclass_scores of all heads.
template <typename T>
void WriteSsdGradients(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                       const SsdScratch& scratch, const SsdHeads<T>& heads);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_SSD_VIEWS_CUH_
