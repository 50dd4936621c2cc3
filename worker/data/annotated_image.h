// The annotation of one image, and the checks on it that all data set formats share.
//
// Thread rule: plain data and functions without shared state.
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

// The kind of annotation that the examples of a data set must have.
enum class Annotation {
  kImageLabel,  // one label per image, for classifiers
  kBoxes,       // any number of boxes per image, including none, for detectors
  kEither,      // whatever the data set has
};

struct AnnotatedObject {
  Box box;            // box.label is -1 until ResolveObject has found it
  std::string text;   // class name
  int32_t index = 0;  // position in the file's list of objects, from 0; used in messages
};

struct AnnotatedImage {
  std::string filename;   // without folders, unless COCO's file_name has some
  std::string source_id;  // the name of the image in its data set
  int height = 0;
  int width = 0;
  std::optional<int32_t> label;  // class of the whole image; 0-based
  std::string label_text;        // class name of the whole image
  std::vector<AnnotatedObject> objects;
};

// An edge may lie this far outside the image, as a share of the image's side: writers round.
inline constexpr float kBoxTolerance = 1e-4f;

// Returns an empty string if the box can be used, and moves edges that lie outside the image by at
// most kBoxTolerance onto its border. Otherwise returns what is wrong and leaves the box alone: an
// edge is not finite, edges are swapped, the box has no area, or it reaches outside the image.
std::string CheckBox(Box* box);

// Sets the object's label from its text and then checks its box. Returns an empty string, or what
// is wrong: the label map has no such class, or a problem that CheckBox found.
std::string ResolveObject(const LabelMap& label_map, AnnotatedObject* object);

// Checks that the annotated `height` and `width`, in pixels, are those of the image; otherwise its
// boxes would be in the wrong places. INVALID_ARGUMENT: they differ. `name` is used in the message.
absl::Status CheckAnnotatedSize(absl::string_view name, const Image& image, int height, int width);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_
