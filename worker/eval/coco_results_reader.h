// Reads detections in COCO's results format: what CocoResultsWriter writes, or another program.
//
// Thread rule: a function without shared state. Holds the whole file and its JSON in memory.
#ifndef PUSHPULL_WORKER_EVAL_COCO_RESULTS_READER_H_
#define PUSHPULL_WORKER_EVAL_COCO_RESULTS_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

// Returns the detections of each of `num_images` images, in the order of the file. The file is a
// JSON array of objects with image_id (0 <= image_id < num_images), category_id (the label plus 1,
// 1 <= category_id <= num_classes), bbox ([x, y, width, height] in pixels) and score; other fields
// are ignored. `image_meaning` is for messages: what an image_id stands for.
// INVALID_ARGUMENT: something else is in the file. The message names the file, the number of the
// result, counted from 0, its field, and what was expected. Errors of the file system.
absl::StatusOr<std::vector<std::vector<DetectedBox>>> ReadCocoResults(
    FileSystem& files, const std::string& path, int64_t num_images, int num_classes,
    absl::string_view image_meaning);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_COCO_RESULTS_READER_H_
