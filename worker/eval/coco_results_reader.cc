// Tested by tests/worker/eval/coco_results_reader_test.cc.
#include "worker/eval/coco_results_reader.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

// An error about a field; the caller adds the file and the number of the result.
absl::Status Expected(absl::string_view field, absl::string_view expected, const Json& object) {
  const auto found = object.find(field);
  // Bytes that are not UTF-8 must not make dump() throw.
  const std::string got = found == object.end()
                              ? "nothing"
                              : found->dump(-1, ' ', true, Json::error_handler_t::replace);
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", got.substr(0, 80), ", expected ", expected));
}

absl::StatusOr<int64_t> ReadInteger(const Json& object, const char* field, int64_t least,
                                    int64_t greatest, absl::string_view meaning) {
  const auto found = object.find(field);
  // An unsigned number may exceed int64_t, and get() would then wrap around.
  if (found != object.end() && found->is_number_integer() &&
      (!found->is_number_unsigned() || found->get<uint64_t>() <= static_cast<uint64_t>(greatest))) {
    const int64_t value = found->get<int64_t>();
    if (least <= value && value <= greatest) return value;
  }
  return Expected(field, absl::StrCat(least, " to ", greatest, ", ", meaning), object);
}

bool IsFinite(const Json& value) { return value.is_number() && std::isfinite(value.get<float>()); }

absl::Status ReadResult(const Json& object, int num_classes, absl::string_view image_meaning,
                        std::vector<std::vector<DetectedBox>>* images) {
  if (!object.is_object()) return absl::InvalidArgumentError("it is not an object");
  PP_ASSIGN_OR_RETURN(
      const int64_t image,
      ReadInteger(object, "image_id", 0, static_cast<int64_t>(images->size()) - 1, image_meaning));
  PP_ASSIGN_OR_RETURN(const int64_t category, ReadInteger(object, "category_id", 1, num_classes,
                                                          "the id of a class in the label map"));
  DetectedBox detection;
  detection.label = static_cast<int32_t>(category - 1);

  const auto box = object.find("bbox");
  if (box == object.end() || !box->is_array() || box->size() != 4 || !IsFinite((*box)[0]) ||
      !IsFinite((*box)[1]) || !IsFinite((*box)[2]) || !IsFinite((*box)[3])) {
    return Expected("bbox", "four finite numbers: [x, y, width, height] in pixels", object);
  }
  detection.box.xmin = (*box)[0].get<float>();
  detection.box.ymin = (*box)[1].get<float>();
  detection.box.xmax = detection.box.xmin + (*box)[2].get<float>();
  detection.box.ymax = detection.box.ymin + (*box)[3].get<float>();

  const auto score = object.find("score");
  if (score == object.end() || !IsFinite(*score)) {
    return Expected("score", "a finite number", object);
  }
  detection.score = score->get<float>();
  (*images)[image].push_back(detection);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<DetectedBox>>> ReadCocoResults(
    FileSystem& files, const std::string& path, int64_t num_images, int num_classes,
    absl::string_view image_meaning) {
  PP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path));
  Json results;
  try {
    results = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not JSON: ", error.what()));
  }
  if (!results.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON array of COCO's results"));
  }
  std::vector<std::vector<DetectedBox>> images(num_images);
  for (size_t i = 0; i < results.size(); ++i) {
    const absl::Status status = ReadResult(results[i], num_classes, image_meaning, &images);
    if (!status.ok()) {
      return Annotated(status, absl::StrCat(path, ", result ", i, ": ", status.message()));
    }
  }
  return images;
}

}  // namespace pushpull
