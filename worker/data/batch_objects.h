// Converts the boxes of a batch to the form that the detection kernels read.
#ifndef PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_
#define PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_

#include <vector>

#include "absl/types/span.h"

#include "kernels/detection/target_assigner.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// Not thread-safe. Reuses its buffers for the next batch.
class BatchObjects {
 public:
  // Replaces the boxes. Both vectors have one entry per sample: its boxes, with edges as shares of
  // the image, and the window of the network's input that the image fills. The result has edges as
  // shares of the network's input. CHECKs that the vectors have the same size.
  void Assign(const std::vector<std::vector<Box>>& boxes, const std::vector<InputWindow>& windows);
  // Returns one span per sample. The memory belongs to this object and is valid until the next
  // Assign.
  const absl::Span<const LabeledBox>* spans() const { return spans_.data(); }

 private:
  std::vector<LabeledBox> objects_;
  std::vector<absl::Span<const LabeledBox>> spans_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_BATCH_OBJECTS_H_
