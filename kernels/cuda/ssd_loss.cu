#include "kernels/cuda/losses.h"
#include "kernels/cuda/ssd_views.cuh"
#include "kernels/detection/ssd_loss.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

SsdLossSettings SettingsOf(const DetectionSpec& spec) {
  SsdLossSettings settings;
  settings.columns = spec.num_classes + 1;
  settings.box_coder = spec.box_coder;
  settings.matcher = spec.matcher;
  settings.background = BackgroundRuleOf(spec.loss);
  settings.formula = LossFormulaOf(spec.loss);
  if (spec.loss.hard_example_miner.has_value()) {
    settings.mines = true;
    settings.miner = *spec.loss.hard_example_miner;
    settings.ranking = RankingWeightsOf(spec.loss, settings.miner);
  }
  settings.classification_weight = spec.loss.classification_weight;
  settings.localization_weight = spec.loss.localization_weight;
  if (spec.loss.normalize_loc_loss_by_codesize) settings.localization_weight /= kBoxCodeSize;
  settings.normalize_by_matches = spec.loss.normalize_loss_by_num_matches;
  return settings;
}

// Cuts the workspace into pieces. Without a workspace it only counts the bytes.
class WorkspaceCutter {
 public:
  explicit WorkspaceCutter(void* workspace) : workspace_(static_cast<unsigned char*>(workspace)) {}

  template <typename Element>
  void Cut(int64_t count, Element** piece) {
    *piece = workspace_ == nullptr ? nullptr : reinterpret_cast<Element*>(workspace_ + bytes_);
    bytes_ +=
        (count * static_cast<int64_t>(sizeof(Element)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kAlignment = 64;
  unsigned char* const workspace_;
  int64_t bytes_ = 0;
};

SsdScratch CutScratch(int64_t samples, int64_t num_anchors, WorkspaceCutter* cutter) {
  const int64_t anchors = samples * num_anchors;
  SsdScratch scratch;
  scratch.key_stride = 1;
  while (scratch.key_stride < num_anchors) scratch.key_stride *= 2;
  cutter->Cut(anchors, &scratch.matches);
  cutter->Cut(anchors, &scratch.classification_losses);
  cutter->Cut(anchors, &scratch.localization_losses);
  cutter->Cut(anchors, &scratch.predicted);
  cutter->Cut(samples * scratch.key_stride, &scratch.keys);
  cutter->Cut(anchors, &scratch.hardest);
  cutter->Cut(anchors, &scratch.hardest_boxes);
  cutter->Cut(anchors, &scratch.hardest_areas);
  cutter->Cut(anchors, &scratch.in_loss);
  cutter->Cut(samples * kSsdSums, &scratch.sums);
  cutter->Cut(2, &scratch.factors);
  return scratch;
}

template <typename T>
SsdHeads<T> HeadsOf(const SsdLossArguments<T>& arguments) {
  SsdHeads<T> heads;
  int first = 0;
  for (const SsdHeadTensors<T>& head : arguments.heads) {
    const int anchors = static_cast<int>(head.num_anchors);
    heads.heads[heads.count++] = {
        first, anchors, head.box_codes, head.class_scores, head.dbox_codes, head.dclass_scores};
    first += anchors;
  }
  return heads;
}

}  // namespace

int64_t SsdLossWorkspaceBytes(int64_t samples, int64_t num_anchors) {
  WorkspaceCutter cutter(nullptr);
  CutScratch(samples, num_anchors, &cutter);
  return cutter.bytes();
}

template <typename T>
void SsdLoss(Queue* queue, const SsdLossArguments<T>& arguments, SsdLossResult* result,
             void* workspace) {
  if (arguments.heads.size() > kMaxSsdHeads) {
    queue->Note(cudaErrorInvalidValue, "SsdLoss, of a detector with more than 16 heads");
    return;
  }
  const SsdLossSettings settings = SettingsOf(*arguments.spec);
  WorkspaceCutter cutter(workspace);
  const SsdScratch scratch = CutScratch(arguments.samples, arguments.num_anchors, &cutter);
  const SsdHeads<T> heads = HeadsOf(arguments);
  SsdBatch batch;
  batch.samples = static_cast<int>(arguments.samples);
  batch.num_anchors = static_cast<int>(arguments.num_anchors);
  batch.anchors = arguments.anchors;
  batch.objects = arguments.objects;
  batch.first_object = arguments.first_object;
  if (batch.samples > 0) {
    MatchSsdAnchors(queue, settings, batch, scratch);
    ComputeSsdAnchorLosses(queue, settings, batch, scratch, heads);
    MineSsdAnchors(queue, settings, batch, scratch);
  }
  SumSsdImages(queue, settings, batch, scratch, result);
  if (batch.samples > 0 && arguments.wants_gradient) {
    WriteSsdGradients(queue, settings, batch, scratch, heads);
  }
}

template void SsdLoss<float>(Queue*, const SsdLossArguments<float>&, SsdLossResult*, void*);
template void SsdLoss<Bfloat16>(Queue*, const SsdLossArguments<Bfloat16>&, SsdLossResult*, void*);

}  // namespace pushpull::PUSHPULL_CUDA
