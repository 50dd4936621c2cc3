// tf.Example, as the TensorFlow Object Detection API stores labelled images, to and from our
// Example. Keys:
//   image/encoded, image/format, image/filename, image/source_id, image/key/sha256   bytes
//   image/height, image/width                                                        int64
//   image/class/text, image/class/label                  bytes, int64: of the image as a whole
//   image/object/bbox/{xmin,xmax,ymin,ymax}              floats, shares of the image's sides
//   image/object/class/text, image/object/class/label    bytes, int64s
//   image/object/{difficult,is_crowd}                    int64s, 0 or 1
//   image/object/{area,weight}                           floats; area in pixels
// Labels in the file are label map ids: 1 is our label 0. Functions only; thread-safe.
#ifndef PUSHPULL_WORKER_DATA_EXAMPLE_CODEC_H_
#define PUSHPULL_WORKER_DATA_EXAMPLE_CODEC_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct ExampleDecoding {
  // Where the class text is looked up; the number counts only where there is no text. Null: numbers
  // only.
  const LabelMap* label_map = nullptr;
  int num_classes = 0;  // labels from here on are unknown
  Annotation annotation = Annotation::kBoxes;
};

// Decodes the image and its labels into *example. Without an image label example->label is 0 (only
// where the decoding does not ask for one). Boxes that cannot be used (unknown class, no area,
// outside the image, bad weight) are left out, each with a line in *issues: `name`, the image's
// filename, the object's index from 0 and what is wrong. `name` says which record this is.
// Errors: DATA_LOSS: not a tf.Example, or a damaged image. INVALID_ARGUMENT: no image/encoded, a
// key of another type, lists of different lengths, an image label that is missing or unknown, an
// image that is not supported.
absl::Status DecodeExample(absl::string_view bytes, absl::string_view name,
                           const ExampleDecoding& decoding, Example* example,
                           std::vector<std::string>* issues);

// The bytes of a tf.Example with all keys above but weight; the same input gives the same bytes.
// Object keys are written if there are objects or no image label. `encoded` is a whole JPEG or PNG
// file; INVALID_ARGUMENT if it is neither by its first bytes.
absl::StatusOr<std::string> EncodeExample(const AnnotatedImage& image, absl::string_view encoded);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_EXAMPLE_CODEC_H_
