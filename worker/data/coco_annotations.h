// COCO's instance annotations (instances_<split>.json): images, boxes [x, y, width, height] in
// pixels, categories.
#ifndef PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_
#define PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct CocoAnnotations {
  // In the file's order. filename as in file_name, source_id the image's id; boxes as shares of the
  // image's size, not yet checked (CheckBox), labels -1; AnnotatedObject::index counts the file's
  // annotations.
  std::vector<AnnotatedImage> images;
  // The categories under their own ids, or numbered from 1 in the order of their ids where one is
  // below 1 or too large.
  LabelMap categories;
};

// Reads the text as it streams by: what is kept are the boxes, not the segmentations, so hundreds
// of MB are fine. `name` is for messages. INVALID_ARGUMENT: not JSON (with the byte), not of this
// form (with the item), an id used twice, an annotation of an image or category that there is not.
absl::StatusOr<CocoAnnotations> ReadCocoAnnotations(std::istream& json, absl::string_view name);
// NOT_FOUND: no such file.
absl::StatusOr<CocoAnnotations> LoadCocoAnnotations(const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_
