// The loss of an SSD detector on a batch and its gradient. It covers target assignment, the losses
// of the anchors, hard example mining and normalisation.
#ifndef PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_
#define PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/target_assigner.h"
#include "kernels/parallel_loop.h"

namespace pushpull {

// The outputs of one head, which predicts for a feature map with `num_anchors` anchors, and where
// their gradients go. K is spec->num_classes + 1; the background is in column 0.
template <typename T>
struct SsdHeadTensors {
  int64_t num_anchors = 0;
  const T* box_codes = nullptr;     // [samples, num_anchors, 4]
  const T* class_scores = nullptr;  // [samples, num_anchors, K]
  // Gradients in the shapes of the outputs; null if not wanted.
  T* dbox_codes = nullptr;
  T* dclass_scores = nullptr;
};

// The operands of a call, all of them views. The anchors of the heads follow one another in
// `anchors`. The objects of sample s are objects[first_object[s]] to
// objects[first_object[s + 1] - 1]. `spec` and `heads` are in host memory, everything else in
// memory of the operators.
template <typename T>
struct SsdLossArguments {
  const DetectionSpec* spec = nullptr;
  int64_t samples = 0;
  int64_t num_anchors = 0;
  const BoundingBox* anchors = nullptr;
  const LabeledBox* objects = nullptr;
  const int32_t* first_object = nullptr;  // [samples + 1]
  absl::Span<const SsdHeadTensors<T>> heads;
  // Whether the gradient of classification_loss + localization_loss is wanted.
  bool wants_gradient = false;
};

struct SsdLossResult {
  double classification_loss = 0.0;
  double localization_loss = 0.0;
  // Counts over all anchors of the batch.
  int64_t matched_anchors = 0;
  int64_t ignored_anchors = 0;
  // Counts over the anchors in the loss: those that are matched and those that are unmatched.
  int64_t mined_positives = 0;
  int64_t mined_negatives = 0;
};

// Computes the loss and, if wanted, the gradient, and blocks until both are done. Let n be
// max(sum of the anchors' box weights over the batch, 1), or 1 without
// normalize_loss_by_num_matches. Then
//   classification_loss = classification_weight / n * sum of class_weight * ClassificationLoss
//   localization_loss   = localization_weight / (4 n if normalize_loc_loss_by_codesize, else n) *
//                         sum of box_weight * LocalizationLoss (box_weight^2 for kL2)
// where the sums run over the anchors that mining keeps, or all anchors without a miner. No
// gradient flows through matching or mining. The images are added in order, in double, so the
// result does not depend on the threads. T is float, double or Bfloat16.
template <typename T>
SsdLossResult SsdLossOnCpu(const SsdLossArguments<T>& arguments, ParallelLoop parallel_for);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SSD_LOSS_H_
