#include "worker/data/label_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace pushpull {
namespace {

// TensorFlow's complete label map of COCO lists the background too. No object has this class.
constexpr absl::string_view kBackground = "background";

// Keeps the first error. Converts protobuf's line and column numbers, which begin at 0, to begin at
// 1.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

absl::StatusOr<LabelMap> LabelMap::Parse(absl::string_view text, absl::string_view source) {
  tensorflow::StringIntLabelMap proto;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(WithoutByteOrderMark(text)), &proto)) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ":", error.text(), " (expected a label map: item { id: 1 name: \"cat\" } ...)"));
  }
  return FromProto(proto, source);
}

absl::StatusOr<LabelMap> LabelMap::Load(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path));
  return Parse(text, path);
}

absl::StatusOr<LabelMap> LabelMap::FromNames(const std::vector<std::string>& names,
                                             absl::string_view source) {
  tensorflow::StringIntLabelMap proto;
  for (const std::string& name : names) {
    tensorflow::StringIntLabelMapItem* item = proto.add_item();
    item->set_name(name);
    item->set_id(proto.item_size());
  }
  return FromProto(proto, source);
}

absl::StatusOr<LabelMap> LabelMap::FromProto(const tensorflow::StringIntLabelMap& proto,
                                             absl::string_view source) {
  LabelMap map;
  map.proto_ = proto;
  map.source_ = std::string(source);
  std::map<int32_t, std::string> by_id;
  for (int i = 0; i < proto.item_size(); ++i) {
    const tensorflow::StringIntLabelMapItem& item = proto.item(i);
    const std::string& shown = item.display_name().empty() ? item.name() : item.display_name();
    const auto error = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": item ", i + 1, " (\"", shown, "\"): ", what...));
    };
    if (!item.has_id()) return error("has no id");
    if (item.id() == 0) {
      if (item.name() == kBackground || item.display_name() == kBackground) continue;
      return error("id 0 is reserved for the background; ids begin at 1");
    }
    if (item.id() < 1 || item.id() > kMaxId) {
      return error("id is ", item.id(), ", expected 1 to ", kMaxId);
    }
    if (shown.empty()) return error("has neither name nor display_name");
    if (const auto [it, added] = by_id.emplace(item.id(), shown); !added) {
      return error("id ", item.id(), " is already that of \"", it->second, "\"");
    }
    const int32_t label = item.id() - 1;
    for (const std::string& name : {item.name(), item.display_name()}) {
      if (name.empty()) continue;
      const auto [it, added] = map.labels_.emplace(name, label);
      if (!added && it->second != label) {
        return error("the name \"", name, "\" is already that of id ", it->second + 1);
      }
    }
  }
  if (by_id.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": the label map has no item of a class; expected item { id: 1 name: \"cat\" }"));
  }
  map.names_.resize(by_id.rbegin()->first);
  for (auto& [id, name] : by_id) map.names_[id - 1] = std::move(name);
  return map;
}

std::optional<int32_t> LabelMap::Find(absl::string_view text) const {
  const auto it = labels_.find(text);
  if (it == labels_.end()) return std::nullopt;
  return it->second;
}

std::optional<std::string> LabelMap::NameWithAnotherLabel(const LabelMap& other) const {
  for (const auto& [name, label] : labels_) {
    const std::optional<int32_t> other_label = other.Find(name);
    if (other_label.has_value() && *other_label != label) return name;
  }
  return std::nullopt;
}

absl::Status LabelMap::CheckFits(int model_classes) const {
  if (num_classes() <= model_classes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source_, ": the label map's ids go up to ", num_classes(),
                   ", the model has num_classes: ", model_classes,
                   "; correct model.ssd.num_classes (or model.classifier.num_classes) or the map"));
}

const std::string& LabelMap::name(int32_t label) const {
  CHECK_GE(label, 0);
  CHECK_LT(label, num_classes());
  return names_[label];
}

std::vector<std::string> LabelMap::class_names(int num_classes) const {
  std::vector<std::string> result;
  for (int label = 0; label < num_classes; ++label) {
    const bool named = label < static_cast<int>(names_.size()) && !names_[label].empty();
    result.push_back(named ? names_[label] : absl::StrCat(label + 1));
  }
  return result;
}

std::string LabelMap::ToText() const {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(proto_, &text));
  return text;
}

}  // namespace pushpull
