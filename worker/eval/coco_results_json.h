// Writes detections in COCO's results format: a JSON array of {"image_id", "category_id", "bbox":
// [x, y, width, height] in pixels, "score"}. pycocotools' loadRes and COCO's server read it if
// image_id is the id of the image in COCO's annotations.
//
// Thread rule: not thread-safe. Memory use does not grow with the number of detections.
#ifndef PUSHPULL_WORKER_EVAL_COCO_RESULTS_JSON_H_
#define PUSHPULL_WORKER_EVAL_COCO_RESULTS_JSON_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/base/temporary_file.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

class CocoResultsWriter {
 public:
  // Starts a temporary file in the folder of `path`, which must exist. `files` must outlive the
  // writer. Of several writers for one path each has a temporary file of its own, and the one that
  // finishes last wins. INVALID_ARGUMENT: `path` has no file name. Errors of the file system.
  static absl::StatusOr<std::unique_ptr<CocoResultsWriter>> Create(FileSystem* files,
                                                                   const std::string& path);

  // Removes the temporary file unless Finish succeeded; `path` then keeps its old contents.
  ~CocoResultsWriter();
  CocoResultsWriter(const CocoResultsWriter&) = delete;
  CocoResultsWriter& operator=(const CocoResultsWriter&) = delete;

  // Adds the detections of one image. category_id is the label plus 1, which is the id in the label
  // map. Numbers are written with the fewest digits that parse to the same float32. Writes to the
  // file about every 64 KiB.
  // INVALID_ARGUMENT: a label is negative, or a box or score is not finite; nothing is added for
  // the image. After an error of the file, all later calls return that error.
  absl::Status Add(int64_t image_id, const std::vector<DetectedBox>& detections);

  // Writes the rest, syncs the file and renames it to `path`. Blocks on the disk. Call at most
  // once, after all other calls.
  absl::Status Finish();

 private:
  CocoResultsWriter(FileSystem* files, std::string path, TemporaryFile temporary);

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
