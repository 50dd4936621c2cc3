// AnnotatedSet reads a published data set (Pascal VOC, COCO, folders of images, IDX) for
// make_records, which turns it into TFRecords. It gives the bytes of each image file and the
// image's annotation.
//
// Thread rule: immutable after opening. Load may be called from several threads at once.
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

#include "common/base/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct LoadedImage {
  AnnotatedImage annotation;  // the labels and boxes for the record
  std::string encoded;        // a whole JPEG or PNG file
  // One line for each box that cannot be used, which is not in `annotation`, and for each that was
  // clipped to the image, with the file, the object and what is wrong.
  BoxIssues issues;
  std::string damage;  // Image::damage
};

class AnnotatedSet {
 public:
  virtual ~AnnotatedSet() = default;
  virtual int64_t size() const = 0;
  virtual const LabelMap& label_map() const = 0;

  // Reads image `index` (0 <= index < size()) and decodes it as a test. Blocks on the disk. Errors
  // name the file. NOT_FOUND: the file does not exist. DATA_LOSS: it does not decode.
  // INVALID_ARGUMENT: it cannot be used, or the image does not have the size that its annotation
  // gives.
  virtual absl::StatusOr<LoadedImage> Load(int64_t index) const = 0;
};

enum class SetFormat {
  kVoc,          // as in voc_annotations.h; the split is a file in <input>/ImageSets/Main
  kCoco,         // <input>/annotations/instances_<split>.json, <input>/<split>/<file_name>
  kImageFolder,  // as in image_folder_source.h; <input>/<split>, or <input> if the split is empty
  kIdx,  // <input>/<split>-{images-idx3,labels-idx1}-ubyte[.gz]; the files of "test" begin with
         // t10k
};

// Accepts "voc", "coco", "image_folder" and "idx". Returns nullopt for other names.
std::optional<SetFormat> ParseSetFormat(absl::string_view name);

// Opens a data set: reads all annotations, and for IDX the images too. `files` must outlive the
// set.
//
// Without `label_map` the classes come from the data set. VOC has the sorted class names of all
// annotation files, COCO its categories and their ids, folders the order of image_folder_source.h,
// and IDX the label numbers as names (label 0 has the id 1).
//
// Errors as in the headers of the formats. INVALID_ARGUMENT also if an image's label is not in
// `label_map`.
absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenAnnotatedSet(
    FileSystem* files, SetFormat format, const std::string& input, const std::string& split,
    const std::optional<LabelMap>& label_map);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_ANNOTATED_SET_H_
