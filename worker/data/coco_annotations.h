// Reads COCO's instance annotations (instances_<split>.json): images, boxes [x, y, width, height]
// in pixels, and categories.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_
#define PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct CocoAnnotations {
  // In the file's order. `filename` is COCO's file_name and `source_id` the image's id. Box edges
  // are shares of the image's sides. The boxes are not checked yet (see CheckBox) and their labels
  // are -1. AnnotatedObject::index is the index in the file's list of annotations.
  std::vector<AnnotatedImage> images;
  // Holds the categories with the ids of the file. If an id is below 1 or above LabelMap::kMaxId,
  // all categories are numbered from 1 instead, in the order of their ids.
  LabelMap categories;
};

// Parses the stream without holding the document in memory: segmentations are skipped, so files of
// hundreds of MB are fine. `name` is used in messages.
// INVALID_ARGUMENT: the text is not JSON (the message gives the byte), an item lacks a field (the
// message names the item), there are no images or no categories, an id is used twice, or an
// annotation refers to an unknown image or category.
absl::StatusOr<CocoAnnotations> ReadCocoAnnotations(std::istream& json, absl::string_view name);
// Reads the file at `path`. Errors as FileSystem::OpenForRead, ReadableFile::ReadAt and
// ReadCocoAnnotations.
absl::StatusOr<CocoAnnotations> LoadCocoAnnotations(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_COCO_ANNOTATIONS_H_
