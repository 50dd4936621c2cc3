#include "common/config/anchor_checks.h"

#include "absl/strings/str_cat.h"

#include "common/config/layer_checks.h"

namespace pushpull {
namespace {

using Pixels = google::protobuf::RepeatedField<int32_t>;

void CheckPixels(const Pixels& pixels, int minimum, int num_layers, const std::string& field,
                 const std::string& action, FieldChecker* checker) {
  if (pixels.size() != num_layers) {
    checker->Add(field, absl::StrCat("one per layer (num_layers: ", num_layers, ")"),
                 absl::StrCat(pixels.size(), " numbers"), action);
  }
  for (const int value : pixels) checker->Between(field, value, minimum, kMaxSide);
}

}  // namespace

void CheckAnchorPlaces(const config::SsdAnchorGenerator& anchors, const std::string& field,
                       FieldChecker* checker) {
  const int layers = anchors.num_layers();
  if (!anchors.height_stride().empty() || !anchors.width_stride().empty()) {
    const char action[] = "give both height_stride and width_stride, or neither";
    CheckPixels(anchors.height_stride(), 1, layers, field + ".height_stride", action, checker);
    CheckPixels(anchors.width_stride(), 1, layers, field + ".width_stride", action, checker);
  }
  if (!anchors.height_offset().empty() || !anchors.width_offset().empty()) {
    const char action[] = "give both height_offset and width_offset, or neither";
    CheckPixels(anchors.height_offset(), 0, layers, field + ".height_offset", action, checker);
    CheckPixels(anchors.width_offset(), 0, layers, field + ".width_offset", action, checker);
  }
}

}  // namespace pushpull
