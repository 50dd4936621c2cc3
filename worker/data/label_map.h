// Maps class names to the class numbers in data files. Reads and writes the label maps of the
// TensorFlow Object Detection API (protobuf text: `item { id: 1 name: "cat" }`). Ids in the file
// begin at 1; a label is an id minus 1. Ids may have gaps: COCO's 80 classes use ids up to 90.
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

#include "common/base/file_system.h"
#include "protos/label_map.pb.h"

namespace pushpull {

class LabelMap {
 public:
  // Parses the text of a label map file. INVALID_ARGUMENT: the text is not a label map, has no
  // item, an item has no id or no name, an id is below 1 or above kMaxId, or two items share an id
  // or a name. An item with the id 0 and the name "background" is left out. The message begins with
  // `source` and gives the line or the item.
  static absl::StatusOr<LabelMap> Parse(absl::string_view text, absl::string_view source);
  // Reads and parses a file. Errors of the file system, or as Parse.
  static absl::StatusOr<LabelMap> Load(FileSystem& files, const std::string& path);
  // Errors as Parse.
  static absl::StatusOr<LabelMap> FromProto(const tensorflow::StringIntLabelMap& proto,
                                            absl::string_view source);
  // Gives the names the ids 1, 2, ... in their order. Errors as Parse.
  static absl::StatusOr<LabelMap> FromNames(const std::vector<std::string>& names,
                                            absl::string_view source);

  static constexpr int32_t kMaxId = 1 << 20;

  // Returns the label of the class with this name or display_name.
  std::optional<int32_t> Find(absl::string_view text) const;
  // Returns the first name or display_name, in the order of the alphabet, to which `other` gives
  // another label; nullopt if there is none. Names that only one of the maps has may differ.
  std::optional<std::string> NameWithAnotherLabel(const LabelMap& other) const;
  // Returns the highest id, which is the number of labels including gaps.
  int num_classes() const { return static_cast<int>(names_.size()); }
  // Returns where the map comes from, such as the path of its file; for messages.
  const std::string& source() const { return source_; }
  // INVALID_ARGUMENT: an id is above the number of the model's classes.
  absl::Status CheckFits(int model_classes) const;
  // Returns the display_name, or the name if there is none; empty for a label in a gap. CHECKs that
  // 0 <= label < num_classes().
  const std::string& name(int32_t label) const;
  // Returns a name for each class of a model with `num_classes` classes, for display. A class
  // without a name in the map gets its id.
  std::vector<std::string> class_names(int num_classes) const;
  // Returns the text of a label map file, which Parse reads.
  std::string ToText() const;

 private:
  LabelMap() = default;

  std::string source_;
  tensorflow::StringIntLabelMap proto_;
  std::map<std::string, int32_t, std::less<>> labels_;
  std::vector<std::string> names_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_LABEL_MAP_H_
