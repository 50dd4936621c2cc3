// The losses of every anchor, and their gradients. A block handles kTile anchors of one image
// (blockIdx.y) in two steps: first with one thread per anchor for the boxes, then with a group of
// lanes per anchor for the scores, so that neighbouring lanes read neighbouring scores.
// Tested by tests/kernels/cuda/ssd_loss_test.cc.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/ssd_views.cuh"
#include "kernels/detection/box_formulas.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kTile = 256;  // threads, and anchors

// The lanes per anchor: the smallest power of two that covers the scores, up to a warp.
int GroupLanes(int columns) {
  int lanes = 1;
  while (lanes < columns && lanes < kWarpLanes) lanes *= 2;
  return lanes;
}

// The anchor that a group of lanes (or a thread) works on. `exists` is false beyond the last
// anchor; such lanes still take part in the shuffles of their warp, with no scores.
template <typename T>
struct GroupTask {
  bool exists;
  int64_t row;  // the anchor's entry in the arrays of the scratch
  AnchorRole role;
  AnchorOutputs<T> outputs;
};

template <typename T>
__device__ __forceinline__ GroupTask<T> TaskOf(const SsdLossSettings& settings,
                                               const SsdBatch& batch, const SsdScratch& scratch,
                                               const SsdHeads<T>& heads, int anchor) {
  GroupTask<T> task = {};
  const int sample = blockIdx.y;
  task.exists = anchor < batch.num_anchors;
  if (!task.exists) return task;
  task.row = int64_t{sample} * batch.num_anchors + anchor;
  task.role = RoleOf(settings.background, scratch.matches[task.row],
                     batch.objects + batch.first_object[sample]);
  task.outputs = OutputsOf(heads, settings.columns, sample, anchor);
  return task;
}

// ln of the sum of exp(score / logit_scale) over the scores of an anchor; all lanes of the group
// receive it.
template <typename T>
__device__ __forceinline__ double GroupLogSumExp(const LossFormula& formula, const T* scores,
                                                 int columns, int lanes) {
  const int lane = threadIdx.x % lanes;
  float largest_score = __uint_as_float(0xff800000u);  // minus infinity
  for (int c = lane; c < columns; c += lanes) {
    largest_score = fmaxf(largest_score, ToFloat(scores[c]));
  }
  const double largest = LaneMax(largest_score, lanes) / formula.logit_scale;
  double sum = 0.0;
  for (int c = lane; c < columns; c += lanes) {
    sum += exp(ToFloat(scores[c]) / formula.logit_scale - largest);
  }
  return largest + log(LaneSum(sum, lanes));
}

// The classification loss of an anchor; all lanes of the group receive it.
template <typename T>
__device__ __forceinline__ double GroupLoss(const LossFormula& formula, const T* scores,
                                            int columns, int class_column, int lanes) {
  if (IsSoftmax(formula)) {
    if (class_column < 0) columns = 0;
    const double log_sum = GroupLogSumExp(formula, scores, columns, lanes);
    return columns == 0 ? 0.0 : SoftmaxLoss(formula, ToFloat(scores[class_column]), log_sum);
  }
  double loss = 0.0;
  for (int c = threadIdx.x % lanes; c < columns; c += lanes) {
    loss += ScoreLoss(formula, ToFloat(scores[c]), c == class_column);
  }
  return LaneSum(loss, lanes);
}

template <typename T>
__device__ __forceinline__ double BoxLoss(const SsdLossSettings& settings, const T* code,
                                          const double* target) {
  double loss = 0.0;
#pragma unroll
  for (int i = 0; i < kBoxCodeSize; ++i) {
    loss += CodeLoss(settings.formula, ToFloat(code[i]) - target[i]);
  }
  return loss;
}

// Writes the localization loss of one anchor and, for the miner, its predicted box.
template <typename T>
__device__ __forceinline__ void LookAtBox(const SsdLossSettings& settings, const SsdBatch& batch,
                                          const SsdScratch& scratch, const GroupTask<T>& task,
                                          int anchor) {
  const BoundingBox anchor_box = batch.anchors[anchor];
  const T* const code = task.outputs.code;
  double loss = 0.0;
  if (task.role.box_weight != 0.0f) {
    const LabeledBox* const objects = batch.objects + batch.first_object[blockIdx.y];
    double target[kBoxCodeSize];
    EncodeBoxInto(settings.box_coder, objects[scratch.matches[task.row]].box, anchor_box, target);
    loss = LocalizationWeight(settings.formula, task.role.box_weight) *
           BoxLoss(settings, code, target);
  }
  scratch.localization_losses[task.row] = loss;
  if (!settings.mines) return;
  const double codes[kBoxCodeSize] = {ToFloat(code[0]), ToFloat(code[1]), ToFloat(code[2]),
                                      ToFloat(code[3])};
  scratch.predicted[task.row] = DecodeBoxFrom(settings.box_coder, codes, anchor_box);
}

// Writes the two losses of 256 anchors of one image. No shared memory: groups of lanes sum by
// shuffles, kTile / lanes anchors at a time. The scores are read once (softmax: twice, the second
// time from the L1 cache), coalesced. Transcendental functions in double for each score (exp,
// log1p, for the focal loss also pow) are the likely bound, above all on GPUs with few units for
// double.
template <typename T>
__global__ void __launch_bounds__(kTile)
    AnchorLossKernel(const SsdLossSettings settings, const SsdBatch batch, const SsdScratch scratch,
                     const SsdHeads<T> heads, int lanes) {
  const int first = blockIdx.x * kTile;
  const int own = first + threadIdx.x;
  if (own < batch.num_anchors) {
    LookAtBox(settings, batch, scratch, TaskOf(settings, batch, scratch, heads, own), own);
  }
  for (int base = 0; base < kTile; base += kTile / lanes) {
    const int anchor = first + base + static_cast<int>(threadIdx.x) / lanes;
    const GroupTask<T> task = TaskOf(settings, batch, scratch, heads, anchor);
    const int columns = task.role.class_weight != 0.0f ? settings.columns : 0;
    const double loss =
        GroupLoss(settings.formula, task.outputs.scores, columns, task.role.class_column, lanes);
    if (task.exists && threadIdx.x % lanes == 0) {
      scratch.classification_losses[task.row] = columns == 0 ? 0.0 : task.role.class_weight * loss;
    }
  }
}

// Writes the four gradients of one anchor's box code; zeros if it has no part in the loss.
template <typename T>
__device__ __forceinline__ void WriteBoxGradient(const SsdLossSettings& settings,
                                                 const SsdBatch& batch, const SsdScratch& scratch,
                                                 const GroupTask<T>& task, int anchor) {
  T* const out = task.outputs.dcode;
  if (out == nullptr) return;
  if (!scratch.in_loss[task.row] || task.role.box_weight == 0.0f) {
#pragma unroll
    for (int i = 0; i < kBoxCodeSize; ++i) out[i] = FromFloat<T>(0.0f);
    return;
  }
  const LabeledBox* const objects = batch.objects + batch.first_object[blockIdx.y];
  double target[kBoxCodeSize];
  EncodeBoxInto(settings.box_coder, objects[scratch.matches[task.row]].box, batch.anchors[anchor],
                target);
  const double factor =
      scratch.factors[1] * LocalizationWeight(settings.formula, task.role.box_weight);
#pragma unroll
  for (int i = 0; i < kBoxCodeSize; ++i) {
    const double slope = CodeSlope(settings.formula, ToFloat(task.outputs.code[i]) - target[i]);
    out[i] = FromFloat<T>(static_cast<float>(factor * slope));
  }
}

// Writes the gradients of one anchor's scores; zeros unless `counts`. All lanes of the warp call
// it.
template <typename T>
__device__ __forceinline__ void WriteScoreGradient(const LossFormula& formula,
                                                   const GroupTask<T>& task, bool counts,
                                                   double factor, int columns, int lanes) {
  const bool softmax = IsSoftmax(formula);
  if (softmax && task.role.class_column < 0) counts = false;
  const int seen = counts ? columns : 0;
  const double log_sum = softmax ? GroupLogSumExp(formula, task.outputs.scores, seen, lanes) : 0.0;
  if (task.outputs.dscores == nullptr) return;
  for (int c = threadIdx.x % lanes; c < columns; c += lanes) {
    double slope = 0.0;
    if (counts) {
      const double score = ToFloat(task.outputs.scores[c]);
      const bool is_target = c == task.role.class_column;
      slope = softmax ? SoftmaxSlope(formula, score, log_sum, is_target)
                      : ScoreSlope(formula, score, is_target);
      slope *= factor;
    }
    task.outputs.dscores[c] = FromFloat<T>(static_cast<float>(slope));
  }
}

// Writes the gradients of 256 anchors of one image, with the same division of work as
// AnchorLossKernel. With mining most anchors only get zeros, so writing them is the likely bound;
// without mining it is the arithmetic in double.
template <typename T>
__global__ void __launch_bounds__(kTile)
    GradientKernel(const SsdLossSettings settings, const SsdBatch batch, const SsdScratch scratch,
                   const SsdHeads<T> heads, int lanes) {
  const int first = blockIdx.x * kTile;
  const int own = first + threadIdx.x;
  if (own < batch.num_anchors) {
    WriteBoxGradient(settings, batch, scratch, TaskOf(settings, batch, scratch, heads, own), own);
  }
  for (int base = 0; base < kTile; base += kTile / lanes) {
    const int anchor = first + base + static_cast<int>(threadIdx.x) / lanes;
    const GroupTask<T> task = TaskOf(settings, batch, scratch, heads, anchor);
    const bool counts = task.exists && task.role.class_weight != 0.0f &&
                        task.outputs.dscores != nullptr && scratch.in_loss[task.row];
    WriteScoreGradient(settings.formula, task, counts, scratch.factors[0] * task.role.class_weight,
                       settings.columns, lanes);
  }
}

LaunchShape TilesOf(const SsdBatch& batch) {
  return {dim3(static_cast<unsigned>((batch.num_anchors + kTile - 1) / kTile),
               static_cast<unsigned>(batch.samples)),
          kTile};
}

}  // namespace

template <typename T>
void ComputeSsdAnchorLosses(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                            const SsdScratch& scratch, const SsdHeads<T>& heads) {
  Launch(queue, "SsdAnchorLosses", TilesOf(batch), AnchorLossKernel<T>, settings, batch, scratch,
         heads, GroupLanes(settings.columns));
}

template <typename T>
void WriteSsdGradients(Queue* queue, const SsdLossSettings& settings, const SsdBatch& batch,
                       const SsdScratch& scratch, const SsdHeads<T>& heads) {
  Launch(queue, "SsdGradients", TilesOf(batch), GradientKernel<T>, settings, batch, scratch, heads,
         GroupLanes(settings.columns));
}

#define PUSHPULL_INSTANTIATE(T)                                                            \
  template void ComputeSsdAnchorLosses<T>(Queue*, const SsdLossSettings&, const SsdBatch&, \
                                          const SsdScratch&, const SsdHeads<T>&);          \
  template void WriteSsdGradients<T>(Queue*, const SsdLossSettings&, const SsdBatch&,      \
                                     const SsdScratch&, const SsdHeads<T>&);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
