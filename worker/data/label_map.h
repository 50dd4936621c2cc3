// The names of the classes and the numbers they have in data files: a label map of the TensorFlow
// Object Detection API (`item { id: 1 name: "cat" }`, protobuf text). The file's ids begin at 1;
// our labels are ids less 1. Ids may leave gaps (COCO's 80 classes use ids up to 90).
//
// Thread rule: immutable.
#ifndef PUSHPULL_WORKER_DATA_LABEL_MAP_H_
#define PUSHPULL_WORKER_DATA_LABEL_MAP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"
#include "protos/label_map.pb.h"

namespace pushpull {

class LabelMap {
 public:
  // INVALID_ARGUMENT, naming `source` and the line or the item: not a label map, no item, an item
  // without id or name, an id below 1 or past kMaxId, an id or a name used twice.
  static absl::StatusOr<LabelMap> Parse(absl::string_view text, absl::string_view source);
  static absl::StatusOr<LabelMap> Load(FileSystem& files, const std::string& path);
  static absl::StatusOr<LabelMap> FromProto(const tensorflow::StringIntLabelMap& proto,
                                            absl::string_view source);
  // Id 1 for the first name, and so on.
  static absl::StatusOr<LabelMap> FromNames(const std::vector<std::string>& names,
                                            absl::string_view source);

  static constexpr int32_t kMaxId = 1 << 20;

  // The label of a class by its name or display_name.
  std::optional<int32_t> Find(absl::string_view text) const;
  // The highest id: labels are below it.
  int num_classes() const { return static_cast<int>(names_.size()); }
  // display_name, or name where there is none; empty for a label in a gap. 0 <= label <
  // num_classes().
  const std::string& name(int32_t label) const;
  // One per class of a model with num_classes, for people; a number where the map has no name.
  std::vector<std::string> class_names(int num_classes) const;
  // The file's contents, for Parse.
  std::string ToText() const;

 private:
  LabelMap() = default;

  tensorflow::StringIntLabelMap proto_;
  std::map<std::string, int32_t, std::less<>> labels_;
  std::vector<std::string> names_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_LABEL_MAP_H_
