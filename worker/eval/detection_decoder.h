// Converts the outputs of a detector's network to detections.
#ifndef PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_
#define PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "common/base/thread_pool.h"
#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/detection/post_processing.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

// Not thread-safe. Reuses its buffers for the next batch.
class DetectionDecoder {
 public:
  explicit DetectionDecoder(const DetectionSpec& spec);

  // Returns the detections of each sample of the batch, those with the highest score first. Box
  // edges are shares of the image. `outputs` come from NetworkRunner::outputs(); `windows` holds
  // for each sample the part of the network's input that its image fills. The samples are divided
  // among the pool's threads.
  std::vector<std::vector<Detection>> Decode(absl::Span<const float* const> outputs,
                                             const std::vector<InputWindow>& windows,
                                             ThreadPool* pool);

  // Returns for each sample of the last batch whether an output was not finite. Decode drops the
  // boxes and scores that come of such outputs.
  const std::vector<char>& diverged() const { return diverged_; }

 private:
  const DetectionSpec spec_;
  const std::vector<BoundingBox> anchors_;
  std::vector<float> codes_, scores_;
  std::vector<char> diverged_;  // not bool: threads write neighbours
};

// Makes a record for detection metrics from the boxes and detections of an image. Converts edges
// from shares of the image to pixels; `height` and `width` are those of the original image in
// pixels, because Box::area is in its pixels.
DetectionRecord MakeDetectionRecord(const std::string& image_id, int height, int width,
                                    const std::vector<Box>& boxes,
                                    const std::vector<Detection>& detections);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTION_DECODER_H_
