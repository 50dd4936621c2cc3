// Converts between Example and tf.Example, the form in which the TensorFlow Object Detection API
// stores labelled images. Keys of a tf.Example:
//
// clang-format off
//   image/encoded, image/format, image/filename, image/source_id, image/key/sha256   bytes
//   image/height, image/width                            int64
//   image/class/text, image/class/label                  bytes, int64; class of the whole image
//   image/object/bbox/{xmin,xmax,ymin,ymax}              floats; shares of the image's sides
//   image/object/class/text, image/object/class/label    bytes, int64s
//   image/object/{difficult,is_crowd,group_of}           int64s; 0 or 1
//   image/object/{area,weight}                           floats; area in square pixels, read as 0
//                                                        unless it is a number above 0
// clang-format on
//
// Labels in the file are label map ids, which begin at 1: id 1 is label 0 of an Example.
//
// Thread rule: functions without shared state.
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
  // If set, a class is looked up here by its text; its number is used only if there is no text. If
  // null, the number is used. Must outlive the call.
  const LabelMap* label_map = nullptr;
  int num_classes = 0;  // ids above it are refused
  Annotation annotation = Annotation::kBoxes;
  bool keep_jpeg = false;  // leave a JPEG encoded in example->image.jpeg; only its header is read
};

// Decodes the image and its annotation into *example. `name` identifies the record in messages.
//
// With kBoxes, or with kEither if the record has no image label, example->label is 0. With
// kImageLabel there are no boxes. Boxes are clipped to the image. Those that cannot be used
// (unknown class, bad weight, a problem that CheckBox finds) are left out. A box that is left out
// or clipped adds a line to *issues with `name`, the image's filename, the object's index from 0
// and what is wrong.
//
// DATA_LOSS: `bytes` is not a tf.Example, or the image is damaged. INVALID_ARGUMENT: there is not
// exactly one image/encoded, a key has the wrong type, the object lists have different lengths, the
// image label is missing or unknown, or the image is not supported.
absl::Status DecodeExample(absl::string_view bytes, absl::string_view name,
                           const ExampleDecoding& decoding, Example* example, BoxIssues* issues);

// Returns a serialized tf.Example with the keys above except image/object/weight and
// image/object/group_of. The image/class keys are written if the image has a label, the
// image/object keys if it has objects or no label. `encoded` holds a whole JPEG or PNG file. The
// same input always gives the same bytes. INVALID_ARGUMENT: `encoded` begins as neither JPEG nor
// PNG.
absl::StatusOr<std::string> EncodeExample(const AnnotatedImage& image, absl::string_view encoded);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_EXAMPLE_CODEC_H_
