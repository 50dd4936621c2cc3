// From the outputs of a detector's network to detections.
#ifndef PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_
#define PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "common/thread_pool.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/post_processing.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

// Keeps scratch memory from batch to batch. Not thread-safe.
class DetectionDecoder {
 public:
  explicit DetectionDecoder(const DetectionSpec& spec);

  // One list per sample of the batch, best first, the boxes in shares of the picture. `outputs` as
  // NetworkRunner::outputs(), `windows` as the samples lie in the input; the pool's threads share
  // the samples.
  std::vector<std::vector<Detection>> Decode(absl::Span<const float* const> outputs,
                                             const std::vector<InputWindow>& windows,
                                             ThreadPool* pool);

 private:
  const DetectionSpec spec_;
  const std::vector<BoundingBox> anchors_;
  std::vector<float> codes_, scores_;
};

// Boxes in pixels of an image of height x width.
DetectionRecord MakeDetectionRecord(const std::string& image_id, int height, int width,
                                    const std::vector<Box>& boxes,
                                    const std::vector<Detection>& detections);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_
