// Tested by tests/worker/data/example_codec_test.cc.
#include "worker/data/annotated_image.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace pushpull {

void BoxIssues::Add(absl::string_view box, const BoxFinding& finding) {
  if (!finding.problem.empty()) left_out.push_back(absl::StrCat(box, ": ", finding.problem));
  if (!finding.clipped.empty()) clipped.push_back(absl::StrCat(box, ": ", finding.clipped));
  if (!finding.unknown_class.empty()) ++unknown_classes[finding.unknown_class];
}

BoxFinding UnknownClass(const LabelMap& label_map, absl::string_view class_name) {
  return {
      absl::StrCat("the class \"", class_name, "\" is not in the label map ", label_map.source()),
      "", std::string(class_name)};
}

std::string DescribeUnknownClasses(const LabelMap& label_map,
                                   const std::map<std::string, int64_t>& unknown_classes) {
  constexpr size_t kMaxNamed = 10;
  std::vector<std::pair<std::string, int64_t>> classes(unknown_classes.begin(),
                                                       unknown_classes.end());
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const size_t unnamed = classes.size() - std::min(classes.size(), kMaxNamed);
  classes.resize(classes.size() - unnamed);
  std::string text =
      absl::StrCat("the label map ", label_map.source(), " does not have the class ");
  text += absl::StrJoin(classes, ", ", [](std::string* out, const auto& named) {
    absl::StrAppend(out, "\"", named.first, "\" (", named.second,
                    named.second == 1 ? " box)" : " boxes)");
  });
  if (unnamed > 0) absl::StrAppend(&text, " and ", unnamed, " more");
  return text;
}

BoxFinding CheckBox(Box* box) {
  const Box given = *box;
  const auto say = [&given](absl::string_view what) {
    return absl::StrFormat("%s: ymin %.6g xmin %.6g ymax %.6g xmax %.6g", what, given.ymin,
                           given.xmin, given.ymax, given.xmax);
  };
  const auto problem = [&say](absl::string_view what) { return BoxFinding{say(what), ""}; };
  for (const float edge : {box->ymin, box->xmin, box->ymax, box->xmax}) {
    if (!std::isfinite(edge)) return problem("the box has an edge that is no number");
  }
  if (box->ymin > box->ymax || box->xmin > box->xmax) return problem("the box has swapped edges");
  if (box->ymin == box->ymax || box->xmin == box->xmax) return problem("the box has no area");
  const float low = std::min(box->ymin, box->xmin), high = std::max(box->ymax, box->xmax);
  if (low < -kMaxBoxOvershoot || high > 1 + kMaxBoxOvershoot) {
    return problem(
        "the box reaches outside the image by more than a tenth of its side (edges are shares of "
        "the sides, 0 to 1)");
  }
  Box clipped = *box;
  for (float* edge : {&clipped.ymin, &clipped.xmin, &clipped.ymax, &clipped.xmax}) {
    *edge = std::clamp(*edge, 0.0f, 1.0f);
  }
  if (clipped.ymin == clipped.ymax || clipped.xmin == clipped.xmax) {
    return problem("the box has no area within the image");
  }
  *box = clipped;
  if (low >= -kBoxTolerance && high <= 1 + kBoxTolerance) return {};
  return {"", say("the box reaches outside the image and is clipped to it")};
}

BoxFinding ResolveObject(const LabelMap& label_map, AnnotatedObject* object) {
  const std::optional<int32_t> label = label_map.Find(object->text);
  if (!label) {
    return UnknownClass(label_map, object->text);
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
