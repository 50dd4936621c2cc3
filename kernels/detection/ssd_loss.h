// The whole loss of an SSD detector on a batch, with its gradient: targets, losses, mining,
// normalisation.
#ifndef PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_
#define PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/target_assigner.h"

namespace pushpull {

// The outputs of one head and where their gradients go, of a feature map with `num_anchors`
// anchors; K = spec->num_classes + 1 with the background in column 0.
template <typename T>
struct SsdHeadTensors {
  int64_t num_anchors = 0;
  const T* box_codes = nullptr;     // [samples, num_anchors, 4]
  const T* class_scores = nullptr;  // [samples, num_anchors, K]
  T* dbox_codes = nullptr;          // null: not wanted
  T* dclass_scores = nullptr;
};

// All views. The anchors of the heads follow one another; objects of sample s are
// objects[first_object[s]] to objects[first_object[s + 1] - 1]. `spec` and `heads` are in host
// memory, all else in the operators'.
template <typename T>
struct SsdLossArguments {
  const DetectionSpec* spec = nullptr;
  int64_t samples = 0;
  int64_t num_anchors = 0;
  const BoundingBox* anchors = nullptr;
  const LabeledBox* objects = nullptr;
  const int32_t* first_object = nullptr;  // [samples + 1]
  absl::Span<const SsdHeadTensors<T>> heads;
  bool wants_gradient = false;  // of classification_loss + localization_loss
};

struct SsdLossResult {
  double classification_loss = 0.0;
  double localization_loss = 0.0;
  int64_t matched_anchors = 0;  // over the batch
  int64_t ignored_anchors = 0;
  int64_t mined_positives = 0;  // of the anchors in the loss, the matched and the unmatched
  int64_t mined_negatives = 0;
};

// With n = max(sum of the anchors' box weights over the batch, 1), or 1 without
// normalize_loss_by_num_matches:
//   classification_loss = classification_weight / n * sum of class_weight * ClassificationLoss
//   localization_loss   = localization_weight / (4 n if normalize_loc_loss_by_codesize, else n) *
//                         sum of box_weight * LocalizationLoss (box_weight^2 for kL2)
// over the anchors that mining keeps, all of them without a miner. No gradient flows through
// matching or mining. Sums are taken image by image in order, in double.
//
// parallel_for(count, body) runs body(0) ... body(count - 1) in any order, on any threads.
template <typename T>
SsdLossResult SsdLossOnCpu(
    const SsdLossArguments<T>& arguments,
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)> parallel_for);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_
