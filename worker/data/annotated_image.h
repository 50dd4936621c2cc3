// What a data set says about one image, and the checks on it that all formats share.
#ifndef PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_
#define PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

// What the examples of a set must have.
enum class Annotation {
  kImageLabel,  // one label for the image: classifiers
  kBoxes,       // any number of boxes, also none: detectors
  kEither,
};

struct AnnotatedObject {
  Box box;            // label: -1 while it is not known
  std::string text;   // the name of its class
  float area = 0;     // in pixels
  int32_t index = 0;  // among the objects of the file, from 0: for messages
};

struct AnnotatedImage {
  std::string filename;   // without folders
  std::string source_id;  // the data set's own name for the image
  int height = 0;
  int width = 0;
  std::optional<int32_t> label;  // of the image as a whole
  std::string label_text;
  std::vector<AnnotatedObject> objects;
};

// How far outside the image rounding may put an edge, as a share of its side.
inline constexpr float kBoxTolerance = 1e-4f;

// Empty if the box may be used: edges that rounding put outside the image are moved onto its
// border. Else what is wrong: not finite, outside, no area.
std::string CheckBox(Box* box);

// Looks up the object's label by its text and checks its box, as above.
std::string ResolveObject(const LabelMap& label_map, AnnotatedObject* object);

// INVALID_ARGUMENT if the annotation speaks of an image of another size, so that its boxes would
// lie elsewhere.
absl::Status CheckAnnotatedSize(absl::string_view name, const Image& image, int height, int width);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_
