// The batch that a step or an evaluation reads, and its results other than the gradient. Plain
// values.
#ifndef PUSHPULL_WORKER_MODEL_STEP_RESULT_H_
#define PUSHPULL_WORKER_MODEL_STEP_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "kernels/detection/ssd_loss.h"
#include "kernels/detection/target_assigner.h"
#include "kernels/image_block.h"
#include "kernels/operands.h"

namespace pushpull {

// A batch in host memory. A view: the memory belongs to the caller.
template <typename T>
struct ImageBatch {
  const T* images = nullptr;        // [samples, H, W, C], normalised to [-1, 1]
  const int32_t* labels = nullptr;  // classifiers: [samples], in [0, num_classes)
  int64_t samples = 0;
  // Detectors: [samples], the objects of each sample, with labels in [0, num_classes).
  const absl::Span<const LabeledBox>* objects = nullptr;
  // Used instead of `images` if RunnerOptions::packed_images is set.
  PackedImages packed_images = {};
};

// A batch in the operators' memory. The objects of sample s are objects[first_object[s]] to
// objects[first_object[s + 1] - 1].
template <typename T>
struct NetworkBatch {
  const T* images = nullptr;
  int64_t samples = 0;
  const int32_t* labels = nullptr;        // classifiers
  const LabeledBox* objects = nullptr;    // detectors
  const int32_t* first_object = nullptr;  // detectors: [samples + 1]
};

// The result that the operators write. A classifier fills only `classification`, a detector only
// `detection`.
struct ObjectiveResult {
  ClassificationResult classification;
  SsdLossResult detection;
};

struct LossComponent {
  std::string name;  // "classification_loss"
  double value = 0.0;
};

struct StepResult {
  double loss = 0.0;  // sum of the components, without the L2 term
  std::vector<LossComponent> components;
  int64_t correct_top1 = 0;  // classifiers only: number of samples
  int64_t correct_top5 = 0;
  int64_t samples = 0;
  SsdLossResult detection;  // detectors only
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_STEP_RESULT_H_
