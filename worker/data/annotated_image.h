// The annotation of one image, and the checks on it that all data set formats share.
//
// Thread rule: plain data and functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_
#define PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_

#include <cstdint>
#include <map>
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

// A data set logs this many of its boxes that cannot be used, and as many of those that it clips.
inline constexpr int kMaxLoggedBoxes = 20;

// How far an edge may lie outside the image, as a share of the image's side. Up to kBoxTolerance it
// is taken for a rounding error of the program that wrote it, up to kMaxBoxOvershoot for an object
// that the image cuts off. TensorFlow's evaluation has the same limit, 1.1.
inline constexpr float kBoxTolerance = 1e-4f;
inline constexpr float kMaxBoxOvershoot = 0.1f;

// The result of checking a box. All texts are empty if the box can be used as it is.
struct BoxFinding {
  std::string problem;  // why the box cannot be used
  std::string clipped;  // that the box was clipped to the image, with the edges that it had
  // The object's class name, if the problem is that the label map does not have it.
  std::string unknown_class = {};
  bool usable() const { return problem.empty(); }
};

// The findings about the boxes of one or several images: one line for each box that cannot be used,
// and for each box that was clipped.
struct BoxIssues {
  std::vector<std::string> left_out;
  std::vector<std::string> clipped;
  // The class names that the label map does not have, with the number of their boxes. These boxes
  // are among those that are left out.
  std::map<std::string, int64_t> unknown_classes;
  // Adds the finding's texts. `box` names the box, such as "a.xml object 3".
  void Add(absl::string_view box, const BoxFinding& finding);
};

// Returns the finding for an object whose class name the label map does not have.
BoxFinding UnknownClass(const LabelMap& label_map, absl::string_view class_name);

// Returns for example
//   the label map m.pbtxt does not have the class "dog" (7 boxes), "ant" (1 box)
// Names the ten classes with the most boxes. `unknown_classes` must not be empty.
std::string DescribeUnknownClasses(const LabelMap& label_map,
                                   const std::map<std::string, int64_t>& unknown_classes);

// Clips a usable box to the image: moves edges that lie outside onto its border, and says so if one
// was further outside than kBoxTolerance. Leaves a box alone that has a problem: an edge is not
// finite, edges are swapped, the box has no area, it reaches out of the image by more than
// kMaxBoxOvershoot, or nothing of it is in the image.
BoxFinding CheckBox(Box* box);

// Sets the object's label from its text and then checks its box. The problem is that the label map
// has no such class, or one that CheckBox found.
BoxFinding ResolveObject(const LabelMap& label_map, AnnotatedObject* object);

// Checks that the annotated `height` and `width`, in pixels, are those of the image; otherwise its
// boxes would be in the wrong places. INVALID_ARGUMENT: they differ. `name` is used in the message.
absl::Status CheckAnnotatedSize(absl::string_view name, const Image& image, int height, int width);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_ANNOTATED_IMAGE_H_
