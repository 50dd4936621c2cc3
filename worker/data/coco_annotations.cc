#include "worker/data/coco_annotations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <streambuf>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

// One element of the list images, annotations or categories. Fields that it does not have stay
// empty.
struct Item {
  std::optional<int64_t> id, image_id, category_id, width, height;
  std::optional<double> area;
  std::string file_name, name;
  std::vector<double> bbox;
  bool iscrowd = false;
};

struct BoxAnnotation {
  int64_t image_id;
  int64_t category_id;
  double x, y, width, height;
  float area;
  bool is_crowd;
};

// Collects the three lists from the events of nlohmann's parser. Depth 1 is the file's object, 2 a
// list in it, 3 an item of the list and 4 a value inside an item.
class Handler : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool value) override { return Number(value ? 1 : 0, value ? 1 : 0); }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value), value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value), static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    // Some writers give whole numbers a decimal point.
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    return Number(value, whole ? std::make_optional(static_cast<int64_t>(value)) : std::nullopt);
  }
  bool string(string_t& value) override {
    if (depth_ != 3 || section_ == Section::kOther) return true;
    if (field_ == "file_name") {
      item_.file_name = std::move(value);
    } else if (field_ == "name") {
      item_.name = std::move(value);
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    if (++depth_ == 3) item_ = Item();
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) {
      section_ = value == "images"        ? Section::kImages
                 : value == "annotations" ? Section::kAnnotations
                 : value == "categories"  ? Section::kCategories
                                          : Section::kOther;
    } else if (depth_ == 3) {
      field_ = value;
    }
    return true;
  }
  bool end_object() override {
    if (depth_-- != 3) return true;
    switch (section_) {
      case Section::kImages:
        return EndImage();
      case Section::kAnnotations:
        return EndAnnotation();
      case Section::kCategories:
        return EndCategory();
      case Section::kOther:
        return true;
    }
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Fail(absl::StrCat("not JSON at byte ", position, ": ", error.what()));
  }

  const std::string& error() const { return error_; }
  std::vector<AnnotatedImage>& images() { return images_; }
  const absl::flat_hash_map<int64_t, size_t>& image_of_id() const { return image_of_id_; }
  const std::vector<BoxAnnotation>& annotations() const { return annotations_; }
  const std::map<int64_t, std::string>& categories() const { return categories_; }

 private:
  enum class Section { kOther, kImages, kAnnotations, kCategories };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool Number(double value, std::optional<int64_t> integer) {
    if (section_ == Section::kOther) return true;
    if (depth_ == 4 && field_ == "bbox") item_.bbox.push_back(value);
    if (depth_ != 3) return true;
    if (field_ == "area") item_.area = value;
    if (field_ == "iscrowd") item_.iscrowd = value != 0;
    if (field_ == "id") item_.id = integer;
    if (field_ == "image_id") item_.image_id = integer;
    if (field_ == "category_id") item_.category_id = integer;
    if (field_ == "width") item_.width = integer;
    if (field_ == "height") item_.height = integer;
    return true;
  }

  bool EndImage() {
    const size_t number = images_.size();
    constexpr int64_t kMaxSide = 1 << 24;
    const bool sized = item_.width && item_.height && *item_.width >= 1 && *item_.height >= 1 &&
                       *item_.width <= kMaxSide && *item_.height <= kMaxSide;
    if (!item_.id || item_.file_name.empty() || !sized) {
      return Fail(absl::StrCat("images[", number,
                               "]: expected id, file_name, width and height (whole numbers)"));
    }
    if (!image_of_id_.emplace(*item_.id, number).second) {
      return Fail(absl::StrCat("images[", number, "]: id ", *item_.id, " is used twice"));
    }
    AnnotatedImage image;
    image.filename = std::move(item_.file_name);
    image.source_id = absl::StrCat(*item_.id);
    image.width = static_cast<int>(*item_.width);
    image.height = static_cast<int>(*item_.height);
    images_.push_back(std::move(image));
    return true;
  }

  bool EndAnnotation() {
    const size_t number = annotations_.size();
    if (!item_.image_id || !item_.category_id || item_.bbox.size() != 4) {
      return Fail(absl::StrCat("annotations[", number,
                               "]: expected image_id, category_id (whole numbers) and bbox [x, y, "
                               "width, height]"));
    }
    const std::vector<double>& box = item_.bbox;
    annotations_.push_back({*item_.image_id, *item_.category_id, box[0], box[1], box[2], box[3],
                            static_cast<float>(item_.area.value_or(box[2] * box[3])),
                            item_.iscrowd});
    return true;
  }

  bool EndCategory() {
    if (!item_.id || item_.name.empty()) {
      return Fail(absl::StrCat("categories[", categories_.size(),
                               "]: expected id (a whole number) and name"));
    }
    if (!categories_.emplace(*item_.id, item_.name).second) {
      return Fail(absl::StrCat("categories: id ", *item_.id, " is used twice"));
    }
    return true;
  }

  int depth_ = 0;
  Section section_ = Section::kOther;
  std::string field_;
  Item item_;
  std::vector<AnnotatedImage> images_;
  absl::flat_hash_map<int64_t, size_t> image_of_id_;
  std::vector<BoxAnnotation> annotations_;
  std::map<int64_t, std::string> categories_;
  std::string error_;
};

// Reads a file from front to back in pieces. After an error of the file the stream ends, and status
// returns the error.
class FileBuffer final : public std::streambuf {
 public:
  explicit FileBuffer(const ReadableFile* file) : file_(file), buffer_(kPieceBytes, '\0') {}
  const absl::Status& status() const { return status_; }

 protected:
  int_type underflow() override {
    const int64_t size = std::min(kPieceBytes, file_->size_bytes() - offset_);
    if (size == 0 || !status_.ok()) return traits_type::eof();
    status_ = file_->ReadAt(offset_, buffer_.data(), size);
    if (!status_.ok()) return traits_type::eof();
    offset_ += size;
    setg(buffer_.data(), buffer_.data(), buffer_.data() + size);
    return traits_type::to_int_type(buffer_[0]);
  }

 private:
  static constexpr int64_t kPieceBytes = 1 << 16;

  const ReadableFile* const file_;
  std::string buffer_;
  int64_t offset_ = 0;
  absl::Status status_;
};

absl::StatusOr<LabelMap> MapOf(const std::map<int64_t, std::string>& categories,
                               absl::string_view name) {
  const bool own_ids = !categories.empty() && categories.begin()->first >= 1 &&
                       categories.rbegin()->first <= LabelMap::kMaxId;
  tensorflow::StringIntLabelMap proto;
  for (const auto& [id, category] : categories) {
    tensorflow::StringIntLabelMapItem* item = proto.add_item();
    item->set_name(category);
    item->set_id(own_ids ? static_cast<int32_t>(id) : proto.item_size());
  }
  return LabelMap::FromProto(proto, absl::StrCat(name, ": categories"));
}

}  // namespace

absl::StatusOr<CocoAnnotations> ReadCocoAnnotations(std::istream& json, absl::string_view name) {
  Handler handler;
  const bool read = Json::sax_parse(json, &handler);
  if (!read || !handler.error().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", handler.error()));
  }
  if (handler.images().empty() || handler.categories().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": no ", handler.images().empty() ? "images" : "categories",
                     "; expected COCO's instance annotations {\"images\": [...], \"annotations\": "
                     "[...], \"categories\": [...]}"));
  }
  std::vector<AnnotatedImage>& images = handler.images();
  for (size_t i = 0; i < handler.annotations().size(); ++i) {
    const BoxAnnotation& annotation = handler.annotations()[i];
    const auto image = handler.image_of_id().find(annotation.image_id);
    const auto category = handler.categories().find(annotation.category_id);
    if (image == handler.image_of_id().end() || category == handler.categories().end()) {
      return absl::InvalidArgumentError(
          image == handler.image_of_id().end()
              ? absl::StrCat(name, ": annotations[", i, "]: no image has the id ",
                             annotation.image_id)
              : absl::StrCat(name, ": annotations[", i, "]: no category has the id ",
                             annotation.category_id));
    }
    AnnotatedImage& target = images[image->second];
    AnnotatedObject object;
    object.box.xmin = static_cast<float>(annotation.x / target.width);
    object.box.xmax = static_cast<float>((annotation.x + annotation.width) / target.width);
    object.box.ymin = static_cast<float>(annotation.y / target.height);
    object.box.ymax = static_cast<float>((annotation.y + annotation.height) / target.height);
    object.box.label = -1;
    object.box.is_crowd = annotation.is_crowd;
    object.text = category->second;
    object.box.area = annotation.area;
    object.index = static_cast<int32_t>(i);
    target.objects.push_back(std::move(object));
  }
  PP_ASSIGN_OR_RETURN(LabelMap categories, MapOf(handler.categories(), name));
  return CocoAnnotations{std::move(images), std::move(categories)};
}

absl::StatusOr<CocoAnnotations> LoadCocoAnnotations(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenForRead(path));
  FileBuffer buffer(file.get());
  std::istream json(&buffer);
  absl::StatusOr<CocoAnnotations> annotations = ReadCocoAnnotations(json, path);
  // A read error ends the stream early, so the annotations would be reported as damaged.
  PP_RETURN_IF_ERROR(buffer.status());
  return annotations;
}

}  // namespace pushpull
