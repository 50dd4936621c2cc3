#include "worker/data/example_codec.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "protos/example.pb.h"
#include "worker/data/image_codec.h"

namespace pushpull {
namespace {

using tensorflow::BytesList;
using tensorflow::Feature;
using tensorflow::FloatList;
using tensorflow::Int64List;

constexpr char kEncoded[] = "image/encoded";
constexpr char kFormat[] = "image/format";
constexpr char kFilename[] = "image/filename";
constexpr char kSourceId[] = "image/source_id";
constexpr char kSha256[] = "image/key/sha256";
constexpr char kHeight[] = "image/height";
constexpr char kWidth[] = "image/width";
constexpr char kImageText[] = "image/class/text";
constexpr char kImageLabel[] = "image/class/label";
constexpr char kXmin[] = "image/object/bbox/xmin";
constexpr char kXmax[] = "image/object/bbox/xmax";
constexpr char kYmin[] = "image/object/bbox/ymin";
constexpr char kYmax[] = "image/object/bbox/ymax";
constexpr char kObjectText[] = "image/object/class/text";
constexpr char kObjectLabel[] = "image/object/class/label";
constexpr char kDifficult[] = "image/object/difficult";
constexpr char kIsCrowd[] = "image/object/is_crowd";
constexpr char kGroupOf[] = "image/object/group_of";
constexpr char kArea[] = "image/object/area";
constexpr char kWeight[] = "image/object/weight";

const char* KindName(Feature::KindCase kind) {
  switch (kind) {
    case Feature::kBytesList:
      return "bytes_list";
    case Feature::kFloatList:
      return "float_list";
    case Feature::kInt64List:
      return "int64_list";
    default:
      return "nothing";
  }
}

// Reads the lists of one tf.Example. A list of the wrong type reads as empty, and status() has the
// error of the first such list.
class Features {
 public:
  Features(const tensorflow::Features& features, absl::string_view name)
      : features_(features.feature()), name_(name) {}

  const BytesList& Bytes(const char* key) {
    const Feature* feature = Find(key, Feature::kBytesList);
    return feature == nullptr ? BytesList::default_instance() : feature->bytes_list();
  }
  const FloatList& Floats(const char* key) {
    const Feature* feature = Find(key, Feature::kFloatList);
    return feature == nullptr ? FloatList::default_instance() : feature->float_list();
  }
  const Int64List& Ints(const char* key) {
    const Feature* feature = Find(key, Feature::kInt64List);
    return feature == nullptr ? Int64List::default_instance() : feature->int64_list();
  }
  const absl::Status& status() const { return status_; }

 private:
  const Feature* Find(const char* key, Feature::KindCase kind) {
    const auto it = features_.find(key);
    if (it == features_.end() || it->second.kind_case() == Feature::KIND_NOT_SET) return nullptr;
    if (it->second.kind_case() == kind) return &it->second;
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": ", key, " is a ",
                                                        KindName(it->second.kind_case()),
                                                        ", expected a ", KindName(kind)));
    }
    return nullptr;
  }

  const google::protobuf::Map<std::string, Feature>& features_;
  const absl::string_view name_;
  absl::Status status_;
};

// The object lists of one tf.Example; element i of each list belongs to object i.
struct ObjectLists {
  explicit ObjectLists(Features* features)
      : xmin(features->Floats(kXmin)),
        xmax(features->Floats(kXmax)),
        ymin(features->Floats(kYmin)),
        ymax(features->Floats(kYmax)),
        text(features->Bytes(kObjectText)),
        label(features->Ints(kObjectLabel)),
        difficult(features->Ints(kDifficult)),
        is_crowd(features->Ints(kIsCrowd)),
        group_of(features->Ints(kGroupOf)),
        area(features->Floats(kArea)),
        weight(features->Floats(kWeight)) {}

  absl::Status CheckLengths(absl::string_view name) const {
    const int expected = xmin.value_size();
    const auto check = [&](const char* key, int got, bool may_be_absent) {
      if (got == expected || (may_be_absent && got == 0)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", key, " has ", got, " elements, ",
                                                     kXmin, " has ", expected,
                                                     "; they must be the same"));
    };
    PP_RETURN_IF_ERROR(check(kXmax, xmax.value_size(), false));
    PP_RETURN_IF_ERROR(check(kYmin, ymin.value_size(), false));
    PP_RETURN_IF_ERROR(check(kYmax, ymax.value_size(), false));
    PP_RETURN_IF_ERROR(check(kObjectText, text.value_size(), true));
    PP_RETURN_IF_ERROR(check(kObjectLabel, label.value_size(), true));
    PP_RETURN_IF_ERROR(check(kDifficult, difficult.value_size(), true));
    PP_RETURN_IF_ERROR(check(kIsCrowd, is_crowd.value_size(), true));
    PP_RETURN_IF_ERROR(check(kGroupOf, group_of.value_size(), true));
    PP_RETURN_IF_ERROR(check(kArea, area.value_size(), true));
    return check(kWeight, weight.value_size(), true);
  }

  const FloatList& xmin;
  const FloatList& xmax;
  const FloatList& ymin;
  const FloatList& ymax;
  const BytesList& text;
  const Int64List& label;
  const Int64List& difficult;
  const Int64List& is_crowd;
  const Int64List& group_of;
  const FloatList& area;
  const FloatList& weight;
};

// Finds the label from element i of the lists, each of which may be shorter. Sets *label, or
// returns a finding with the reason why there is no label.
BoxFinding FindLabel(const BytesList& texts, const Int64List& ids, int i,
                     const ExampleDecoding& decoding, int32_t* label) {
  const absl::string_view text =
      i < texts.value_size() ? absl::string_view(texts.value(i)) : absl::string_view();
  int64_t id = 0;
  if (decoding.label_map != nullptr && !text.empty()) {
    const std::optional<int32_t> found = decoding.label_map->Find(text);
    if (!found) return UnknownClass(*decoding.label_map, text);
    id = *found + 1;
  } else if (i < ids.value_size()) {
    id = ids.value(i);
    if (id == 0) return {"class id 0 is reserved for the background; ids begin at 1", ""};
  } else if (text.empty()) {
    return {"has neither class text nor class label", ""};
  } else {
    return {absl::StrCat("has the class text \"", text,
                         "\" but no number; give a label map to look it up in"),
            ""};
  }
  if (id < 1 || id > decoding.num_classes) {
    return {absl::StrCat("class id ", id, text.empty() ? "" : absl::StrCat(" (\"", text, "\")"),
                         " is not within 1 to ", decoding.num_classes),
            ""};
  }
  *label = static_cast<int32_t>(id - 1);
  return {};
}

// Returns a name such as "record 3 (a.jpg)".
std::string FullName(absl::string_view name, Features* features) {
  for (const char* key : {kFilename, kSourceId}) {
    const BytesList& list = features->Bytes(key);
    if (list.value_size() > 0 && !list.value(0).empty()) {
      return absl::StrCat(name, " (", list.value(0), ")");
    }
  }
  return std::string(name);
}

BoxFinding DecodeObject(const ObjectLists& lists, int i, const ExampleDecoding& decoding,
                        Box* box) {
  *box = Box{lists.ymin.value(i), lists.xmin.value(i), lists.ymax.value(i), lists.xmax.value(i)};
  BoxFinding finding = FindLabel(lists.text, lists.label, i, decoding, &box->label);
  if (!finding.usable()) return finding;
  finding = CheckBox(box);
  if (!finding.usable()) return finding;
  box->difficult = lists.difficult.value_size() > 0 && lists.difficult.value(i) != 0;
  box->is_crowd = lists.is_crowd.value_size() > 0 && lists.is_crowd.value(i) != 0;
  box->is_group_of = lists.group_of.value_size() > 0 && lists.group_of.value(i) != 0;
  if (lists.area.value_size() > 0) {
    const float area = lists.area.value(i);
    if (std::isfinite(area) && area > 0) box->area = area;
  }
  if (lists.weight.value_size() > 0) box->weight = lists.weight.value(i);
  if (!std::isfinite(box->weight) || box->weight < 0) {
    return {absl::StrCat("weight is ", box->weight, ", expected 0 or more"), ""};
  }
  return finding;
}

class FeatureWriter {
 public:
  void Bytes(const char* key, absl::string_view value) {
    features()[key].mutable_bytes_list()->add_value(value.data(), value.size());
  }
  void Int(const char* key, int64_t value) {
    features()[key].mutable_int64_list()->add_value(value);
  }
  void Float(const char* key, float value) {
    features()[key].mutable_float_list()->add_value(value);
  }
  // Adds the object keys with empty lists, so that a record without objects has them too.
  void EmptyObjectLists() {
    for (const char* key : {kXmin, kXmax, kYmin, kYmax, kArea})
      features()[key].mutable_float_list();
    for (const char* key : {kObjectLabel, kDifficult, kIsCrowd}) {
      features()[key].mutable_int64_list();
    }
    features()[kObjectText].mutable_bytes_list();
  }
  std::string Serialize() const {
    std::string bytes;
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    example_.SerializeToCodedStream(&coded);
    coded.Trim();
    return bytes;
  }

 private:
  google::protobuf::Map<std::string, Feature>& features() {
    return *example_.mutable_features()->mutable_feature();
  }
  tensorflow::Example example_;
};

}  // namespace

absl::Status DecodeExample(absl::string_view bytes, absl::string_view name,
                           const ExampleDecoding& decoding, Example* example, BoxIssues* issues) {
  tensorflow::Example proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(absl::StrCat(name, ": not a tf.Example"));
  }
  Features features(proto.features(), name);
  const std::string full_name = FullName(name, &features);
  const BytesList& encoded = features.Bytes(kEncoded);
  const ObjectLists lists(&features);
  const BytesList& image_text = features.Bytes(kImageText);
  const Int64List& image_label = features.Ints(kImageLabel);
  PP_RETURN_IF_ERROR(features.status());
  PP_RETURN_IF_ERROR(lists.CheckLengths(full_name));
  if (encoded.value_size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        full_name, ": ", kEncoded, " has ", encoded.value_size(), " elements, expected one image"));
  }
  example->label = 0;
  const bool has_label = image_text.value_size() > 0 || image_label.value_size() > 0;
  if (decoding.annotation == Annotation::kImageLabel ||
      (decoding.annotation == Annotation::kEither && has_label)) {
    const BoxFinding finding = FindLabel(image_text, image_label, 0, decoding, &example->label);
    if (!finding.usable()) {
      return absl::InvalidArgumentError(absl::StrCat(full_name, ": the image: ", finding.problem,
                                                     " (", kImageText, ", ", kImageLabel, ")"));
    }
  }
  PP_RETURN_IF_ERROR(decoding.keep_jpeg
                         ? DecodeAllButJpeg(encoded.value(0), full_name, &example->image)
                         : DecodeImage(encoded.value(0), full_name, &example->image));
  example->boxes.clear();
  if (decoding.annotation == Annotation::kImageLabel) return absl::OkStatus();
  for (int i = 0; i < lists.xmin.value_size(); ++i) {
    Box box;
    const BoxFinding finding = DecodeObject(lists, i, decoding, &box);
    if (finding.usable()) example->boxes.push_back(box);
    issues->Add(absl::StrCat(full_name, " object ", i), finding);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodeExample(const AnnotatedImage& image, absl::string_view encoded) {
  const bool is_jpeg = absl::StartsWith(encoded, "\xff\xd8");
  if (!is_jpeg && !absl::StartsWith(encoded, "\x89PNG")) {
    return absl::InvalidArgumentError(
        absl::StrCat(image.filename, ": neither a JPEG nor a PNG file by its first bytes"));
  }
  FeatureWriter writer;
  writer.Bytes(kEncoded, encoded);
  writer.Bytes(kFormat, is_jpeg ? "jpeg" : "png");
  writer.Bytes(kFilename, image.filename);
  writer.Bytes(kSourceId, image.source_id);
  writer.Bytes(kSha256, Sha256Hex(encoded));
  writer.Int(kHeight, image.height);
  writer.Int(kWidth, image.width);
  if (image.label) {
    writer.Bytes(kImageText, image.label_text);
    writer.Int(kImageLabel, int64_t{*image.label} + 1);
    if (image.objects.empty()) return writer.Serialize();
  }
  writer.EmptyObjectLists();
  for (const AnnotatedObject& object : image.objects) {
    writer.Float(kXmin, object.box.xmin);
    writer.Float(kXmax, object.box.xmax);
    writer.Float(kYmin, object.box.ymin);
    writer.Float(kYmax, object.box.ymax);
    writer.Bytes(kObjectText, object.text);
    writer.Int(kObjectLabel, int64_t{object.box.label} + 1);
    writer.Int(kDifficult, object.box.difficult ? 1 : 0);
    writer.Int(kIsCrowd, object.box.is_crowd ? 1 : 0);
    writer.Float(kArea, object.box.area);
  }
  return writer.Serialize();
}

}  // namespace pushpull
