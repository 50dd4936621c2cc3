// The boxes of a batch as the detection kernels read them.
#ifndef PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_
#define PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_

#include <vector>

#include "absl/types/span.h"

#include "kernels/detection/target_assigner.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// Keeps its memory from batch to batch. Not thread-safe.
class BatchObjects {
 public:
  // One entry per sample; the boxes are given in shares of the picture, wanted in shares of the
  // network's input.
  void Assign(const std::vector<std::vector<Box>>& boxes, const std::vector<InputWindow>& windows);
  // One span per sample; valid until the next Assign.
  const absl::Span<const LabeledBox>* spans() const { return spans_.data(); }

 private:
  std::vector<LabeledBox> objects_;
  std::vector<absl::Span<const LabeledBox>> spans_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_
