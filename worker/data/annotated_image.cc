// Tested by tests/worker/data/example_codec_test.cc.
#include "worker/data/annotated_image.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace pushpull {

std::string CheckBox(Box* box) {
  const auto problem = [box](const char* what) {
    return absl::StrFormat("%s: ymin %.6g xmin %.6g ymax %.6g xmax %.6g", what, box->ymin,
                           box->xmin, box->ymax, box->xmax);
  };
  for (const float edge : {box->ymin, box->xmin, box->ymax, box->xmax}) {
    if (!std::isfinite(edge)) return problem("the box has an edge that is no number");
  }
  if (box->ymin > box->ymax || box->xmin > box->xmax) return problem("the box has swapped edges");
  if (box->ymin == box->ymax || box->xmin == box->xmax) return problem("the box has no area");
  if (std::min(box->ymin, box->xmin) < -kBoxTolerance ||
      std::max(box->ymax, box->xmax) > 1 + kBoxTolerance) {
    return problem("the box reaches outside the image (edges are shares of its sides, 0 to 1)");
  }
  Box clipped = *box;
  for (float* edge : {&clipped.ymin, &clipped.xmin, &clipped.ymax, &clipped.xmax}) {
    *edge = std::clamp(*edge, 0.0f, 1.0f);
  }
  if (clipped.ymin == clipped.ymax || clipped.xmin == clipped.xmax) {
    return problem("the box has no area within the image");
  }
  *box = clipped;
  return "";
}

std::string ResolveObject(const LabelMap& label_map, AnnotatedObject* object) {
  const std::optional<int32_t> label = label_map.Find(object->text);
  if (!label) {
    return absl::StrFormat("the class \"%s\" is not in the label map", object->text);
  }
  object->box.label = *label;
  return CheckBox(&object->box);
}

absl::Status CheckAnnotatedSize(absl::string_view name, const Image& image, int height, int width) {
  if (image.height == height && image.width == width) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: the image is %d x %d (height x width), its annotation says %d x %d; correct the one or "
      "the other",
      name, image.height, image.width, height, width));
}

}  // namespace pushpull
