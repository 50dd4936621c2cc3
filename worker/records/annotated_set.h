// A data set as others publish it (Pascal VOC, COCO, folders of images, IDX), as what make_records
// turns into TFRecords: the bytes of each image file and what is said about it.
//
// Thread rule: immutable after opening; Load may be called from several threads at once.
#ifndef PUSHPULL_WORKER_RECORDS_ANNOTATED_SET_H_
#define PUSHPULL_WORKER_RECORDS_ANNOTATED_SET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct LoadedImage {
  AnnotatedImage annotation;         // labels and boxes as they go into the record
  std::string encoded;               // a whole JPEG or PNG file
  std::vector<std::string> skipped;  // boxes that cannot be used: file, object, what is wrong
};

class AnnotatedSet {
 public:
  virtual ~AnnotatedSet() = default;
  virtual int64_t size() const = 0;
  virtual const LabelMap& label_map() const = 0;

  // Reads and decodes image `index` (0 <= index < size()) to be sure that it can be. Errors name
  // the file: NOT_FOUND, DATA_LOSS, INVALID_ARGUMENT, the latter also for an image of another size
  // than its annotation says.
  virtual absl::StatusOr<LoadedImage> Load(int64_t index) const = 0;
};

enum class SetFormat {
  kVoc,          // voc_annotations.h; split: a file of ImageSets/Main
  kCoco,         // <input>/annotations/instances_<split>.json, <input>/<split>/<file_name>
  kImageFolder,  // image_folder_source.h in <input>/<split>, or in <input> if split is empty
  kIdx,  // <input>/<split>-images-idx3-ubyte and -labels-idx1-ubyte, .gz or not; test: t10k-
};

// "voc", "coco", "image_folder" or "idx".
std::optional<SetFormat> ParseSetFormat(absl::string_view name);

// Reads the annotations, and of IDX the images. Without a label map the set's own one is derived:
// sorted class names (VOC, of all annotations; folders as image_folder_source.h numbers them),
// COCO's category ids, or IDX's numbers (0 has the id 1). `files` must outlive the set. Errors as
// the headers of the formats; INVALID_ARGUMENT: an image label that the label map does not have.
absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenAnnotatedSet(
    FileSystem* files, SetFormat format, const std::string& input, const std::string& split,
    const std::optional<LabelMap>& label_map);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_ANNOTATED_SET_H_
