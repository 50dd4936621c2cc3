// Writes detections in COCO's results format, which pycocotools' loadRes and COCO's server read: a
// JSON array of {"image_id", "category_id", "bbox": [x, y, width, height] in pixels, "score"}.
//
// Thread rule: one thread at a time. Memory does not grow with the detections.
#ifndef PUSHPULL_WORKER_EVAL_COCO_RESULTS_JSON_H_
#define PUSHPULL_WORKER_EVAL_COCO_RESULTS_JSON_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

class CocoResultsWriter {
 public:
  // Writes to a temporary file beside `path`, whose folder must exist. `files` must outlive the
  // writer.
  static absl::StatusOr<std::unique_ptr<CocoResultsWriter>> Create(FileSystem* files,
                                                                   const std::string& path);

  // Without Finish, or after an error, removes the temporary file and leaves `path` as it was.
  ~CocoResultsWriter();
  CocoResultsWriter(const CocoResultsWriter&) = delete;
  CocoResultsWriter& operator=(const CocoResultsWriter&) = delete;

  // category_id is the label plus 1, the label map's id. Numbers are the shortest that give the
  // same float32. INVALID_ARGUMENT, and nothing of the image is written: a negative label, a box or
  // score that is not finite. An error of the file stays: all later calls return it.
  absl::Status Add(int64_t image_id, const std::vector<DetectedBox>& detections);

  // Syncs and gives the file its name. Blocks on the disk. Call at most once, as the last.
  absl::Status Finish();

 private:
  CocoResultsWriter(FileSystem* files, std::string path, std::string temporary,
                    std::unique_ptr<WritableFile> file);

  absl::Status Flush();
  absl::Status Publish();

  FileSystem* const files_;
  const std::string path_;
  const std::string temporary_;
  std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  bool first_ = true;
  bool published_ = false;
  absl::Status status_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_COCO_RESULTS_JSON_H_
