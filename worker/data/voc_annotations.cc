// Tested by tests/worker/data/voc_source_test.cc.
#include "worker/data/voc_annotations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "pugixml.hpp"

namespace pushpull {
namespace {

absl::string_view Text(const pugi::xml_node& node, const char* name) {
  return absl::StripAsciiWhitespace(node.child(name).text().get());
}

// Parses one <object>.
class ObjectParser {
 public:
  ObjectParser(absl::string_view path, const AnnotatedImage& image, int index)
      : path_(path), image_(image), index_(index) {}

  absl::StatusOr<AnnotatedObject> Parse(const pugi::xml_node& node) const {
    AnnotatedObject object;
    object.index = index_;
    object.text = std::string(Text(node, "name"));
    if (object.text.empty()) return Error("has no name");
    const pugi::xml_node bounds = node.child("bndbox");
    if (!bounds) return Error("has no bndbox");
    double xmin = 0, xmax = 0, ymin = 0, ymax = 0;
    for (const auto& [name, value] :
         {std::make_pair("xmin", &xmin), std::make_pair("xmax", &xmax),
          std::make_pair("ymin", &ymin), std::make_pair("ymax", &ymax)}) {
      const absl::string_view text = Text(bounds, name);
      if (!absl::SimpleAtod(text, value)) {
        return Error(absl::StrCat("bndbox.", name, " is \"", text, "\", expected a number"));
      }
    }
    object.box.xmin = static_cast<float>(xmin / image_.width);
    object.box.xmax = static_cast<float>(xmax / image_.width);
    object.box.ymin = static_cast<float>(ymin / image_.height);
    object.box.ymax = static_cast<float>(ymax / image_.height);
    object.box.label = -1;
    object.box.area = static_cast<float>((xmax - xmin) * (ymax - ymin));
    const absl::string_view difficult = Text(node, "difficult");
    if (difficult != "" && difficult != "0" && difficult != "1") {
      return Error(absl::StrCat("difficult is \"", difficult, "\", expected 0 or 1"));
    }
    object.box.difficult = difficult == "1";
    return object;
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": object ", index_, ": ", what));
  }

  const absl::string_view path_;
  const AnnotatedImage& image_;
  const int index_;
};

}  // namespace

absl::StatusOr<AnnotatedImage> ParseVocAnnotation(absl::string_view xml, absl::string_view path) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
  if (!result) {
    std::string place(path);
    // pugixml converts the text to UTF-8 and reports an offset in the result, so the offset gives
    // the line of the file only if the file is UTF-8.
    if (result.encoding == pugi::encoding_utf8) {
      const absl::string_view before = xml.substr(0, result.offset);
      absl::StrAppend(&place, ":", 1 + std::count(before.begin(), before.end(), '\n'));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": not well-formed XML: ", result.description()));
  }
  const pugi::xml_node root = document.child("annotation");
  if (!root) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the root is <", document.document_element().name(), ">, expected <annotation>"));
  }
  AnnotatedImage image;
  const pugi::xml_node size = root.child("size");
  if (!absl::SimpleAtoi(Text(size, "width"), &image.width) ||
      !absl::SimpleAtoi(Text(size, "height"), &image.height) || image.width < 1 ||
      image.height < 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": size is width \"", Text(size, "width"),
                                                   "\" height \"", Text(size, "height"),
                                                   "\", expected the image's size in pixels"));
  }
  for (const pugi::xml_node& node : root.children("object")) {
    const int index = static_cast<int>(image.objects.size());
    PP_ASSIGN_OR_RETURN(AnnotatedObject object, ObjectParser(path, image, index).Parse(node));
    image.objects.push_back(std::move(object));
  }
  return image;
}

absl::StatusOr<std::vector<std::string>> ReadVocSplit(FileSystem& files, const std::string& path,
                                                      const std::string& split) {
  const std::string folder = JoinPath(path, "ImageSets/Main");
  const std::string list = JoinPath(folder, absl::StrCat(split, ".txt"));
  const absl::StatusOr<std::string> text = ReadWholeFile(files, list);
  if (absl::IsNotFound(text.status())) {
    PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
    std::vector<absl::string_view> splits;
    for (absl::string_view name : names) {
      if (absl::EndsWith(name, ".txt")) splits.push_back(name.substr(0, name.size() - 4));
    }
    return absl::NotFoundError(absl::StrCat(list, ": no such split; there are: ",
                                            splits.empty() ? "none" : absl::StrJoin(splits, ", ")));
  }
  PP_RETURN_IF_ERROR(text.status());
  std::vector<std::string> ids;
  std::set<absl::string_view> seen;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(WithoutByteOrderMark(*text), '\n')) {
    ++line_number;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (!seen.insert(words[0]).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(list, ":", line_number, ": ", words[0], " is listed twice"));
    }
    ids.emplace_back(words[0]);
  }
  if (ids.empty()) return absl::InvalidArgumentError(absl::StrCat(list, ": names no image"));
  return ids;
}

absl::StatusOr<LabelMap> DeriveVocLabelMap(FileSystem& files, const std::string& path) {
  const std::string folder = JoinPath(path, "Annotations");
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  std::set<std::string> classes;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".xml") || absl::StartsWith(name, ".")) continue;
    const std::string file = JoinPath(folder, name);
    PP_ASSIGN_OR_RETURN(const std::string xml, ReadWholeFile(files, file));
    PP_ASSIGN_OR_RETURN(const AnnotatedImage image, ParseVocAnnotation(xml, file));
    for (const AnnotatedObject& object : image.objects) classes.insert(object.text);
  }
  if (classes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": no object in any .xml file"));
  }
  return LabelMap::FromNames({classes.begin(), classes.end()}, folder);
}

absl::StatusOr<std::vector<std::string>> FindVocImages(FileSystem& files, const std::string& path,
                                                       const std::vector<std::string>& ids) {
  const std::string folder = JoinPath(path, "JPEGImages");
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  std::vector<std::string> found;
  int missing = 0;
  std::string first;
  for (const std::string& id : ids) {
    bool exists = false;
    for (const char* extension : {".jpg", ".jpeg", ".png"}) {
      const std::string name = absl::StrCat(id, extension);
      exists = std::binary_search(names.begin(), names.end(), name);
      if (!exists) continue;
      found.push_back(JoinPath(folder, name));
      break;
    }
    if (!exists && missing++ == 0) first = id;
  }
  if (missing == 0) return found;
  return absl::NotFoundError(absl::StrCat(folder, ": ", missing, " of ", ids.size(),
                                          " images have no .jpg, .jpeg or .png file, the first of "
                                          "them ",
                                          first));
}

std::string VocAnnotationPath(const std::string& path, absl::string_view id) {
  return JoinPath(path, absl::StrCat("Annotations/", id, ".xml"));
}

}  // namespace pushpull
