#include "worker/records/annotated_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "worker/data/coco_annotations.h"
#include "worker/data/idx_source.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_encoder.h"
#include "worker/data/image_folder_source.h"
#include "worker/data/voc_annotations.h"

namespace pushpull {
namespace {

constexpr int kMaxIdxClasses = 256;  // IDX labels are bytes

// A data set whose images are files.
class FileSet final : public AnnotatedSet {
 public:
  struct Entry {
    std::string path;        // of the image file
    std::string annotation;  // the annotation file, for messages
    AnnotatedImage image;    // height 0: the annotation does not give the size
  };

  FileSet(FileSystem* files, LabelMap label_map, std::vector<Entry> entries)
      : files_(files), label_map_(std::move(label_map)), entries_(std::move(entries)) {}

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  const LabelMap& label_map() const override { return label_map_; }

  absl::StatusOr<LoadedImage> Load(int64_t index) const override {
    CHECK_GE(index, 0);
    CHECK_LT(index, size());
    const Entry& entry = entries_[index];
    LoadedImage loaded;
    loaded.annotation = entry.image;
    PP_ASSIGN_OR_RETURN(loaded.encoded, ReadWholeFile(*files_, entry.path));
    Image image;
    PP_RETURN_IF_ERROR(DecodeImage(loaded.encoded, entry.path, &image));
    if (entry.image.height > 0) {
      PP_RETURN_IF_ERROR(
          CheckAnnotatedSize(entry.path, image, entry.image.height, entry.image.width));
    }
    loaded.annotation.height = image.height;
    loaded.annotation.width = image.width;
    loaded.damage = image.damage;
    // The readers of records accept JPEG and PNG only, so a PGM file is converted.
    if (absl::StartsWith(loaded.encoded, "P5")) {
      PP_RETURN_IF_ERROR(EncodePng(image, &loaded.encoded));
    }
    std::vector<AnnotatedObject> usable;
    for (AnnotatedObject& object : loaded.annotation.objects) {
      const BoxFinding finding = ResolveObject(label_map_, &object);
      loaded.issues.Add(absl::StrCat(entry.annotation, " object ", object.index, " (\"",
                                     object.text, "\", ", entry.image.filename, ")"),
                        finding);
      if (finding.usable()) usable.push_back(std::move(object));
    }
    loaded.annotation.objects = std::move(usable);
    return loaded;
  }

 private:
  FileSystem* const files_;
  const LabelMap label_map_;
  const std::vector<Entry> entries_;
};

class IdxSet final : public AnnotatedSet {
 public:
  IdxSet(std::unique_ptr<ImageSource> source, LabelMap label_map, std::string name)
      : source_(std::move(source)), label_map_(std::move(label_map)), name_(std::move(name)) {}

  int64_t size() const override { return source_->size(); }
  const LabelMap& label_map() const override { return label_map_; }

  absl::StatusOr<LoadedImage> Load(int64_t index) const override {
    Example example;
    PP_RETURN_IF_ERROR(source_->Get(index, &example));
    LoadedImage loaded;
    loaded.annotation.filename = absl::StrFormat("%s-%06d.png", name_, index);
    loaded.annotation.source_id = absl::StrCat(index);
    loaded.annotation.height = example.image.height;
    loaded.annotation.width = example.image.width;
    loaded.annotation.label = example.label;
    loaded.annotation.label_text = label_map_.name(example.label);
    PP_RETURN_IF_ERROR(EncodePng(example.image, &loaded.encoded));
    return loaded;
  }

 private:
  const std::unique_ptr<ImageSource> source_;
  const LabelMap label_map_;
  const std::string name_;
};

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenVoc(FileSystem* files, const std::string& input,
                                                      const std::string& split,
                                                      const std::optional<LabelMap>& given) {
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> ids, ReadVocSplit(*files, input, split));
  PP_ASSIGN_OR_RETURN(std::vector<std::string> paths, FindVocImages(*files, input, ids));
  PP_ASSIGN_OR_RETURN(LabelMap label_map,
                      given ? absl::StatusOr<LabelMap>(*given) : DeriveVocLabelMap(*files, input));
  std::vector<FileSet::Entry> entries;
  for (size_t i = 0; i < ids.size(); ++i) {
    FileSet::Entry entry;
    entry.annotation = VocAnnotationPath(input, ids[i]);
    PP_ASSIGN_OR_RETURN(const std::string xml, ReadWholeFile(*files, entry.annotation));
    PP_ASSIGN_OR_RETURN(entry.image, ParseVocAnnotation(xml, entry.annotation));
    entry.path = std::move(paths[i]);
    entry.image.filename = BaseName(entry.path);
    entry.image.source_id = entry.image.filename;
    entries.push_back(std::move(entry));
  }
  return std::make_unique<FileSet>(files, std::move(label_map), std::move(entries));
}

absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenCoco(FileSystem* files, const std::string& input,
                                                       const std::string& split,
                                                       const std::optional<LabelMap>& given) {
  const std::string json = JoinPath(input, absl::StrCat("annotations/instances_", split, ".json"));
  PP_ASSIGN_OR_RETURN(CocoAnnotations coco, LoadCocoAnnotations(*files, json));
  std::vector<FileSet::Entry> entries;
  for (AnnotatedImage& image : coco.images) {
    FileSet::Entry entry;
    entry.path = JoinPath(JoinPath(input, split), image.filename);
    entry.annotation = absl::StrCat(json, " annotations");
    entry.image = std::move(image);
    entries.push_back(std::move(entry));
  }
  return std::make_unique<FileSet>(files, given ? *given : coco.categories, std::move(entries));
}

absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenFolder(FileSystem* files,
                                                         const std::string& input,
                                                         const std::string& split,
                                                         const std::optional<LabelMap>& given) {
  const std::string path = split.empty() ? input : JoinPath(input, split);
  PP_ASSIGN_OR_RETURN(const ImageFolderSource::Listing listing,
                      ImageFolderSource::ListImages(path));
  PP_ASSIGN_OR_RETURN(LabelMap label_map, given ? absl::StatusOr<LabelMap>(*given)
                                                : LabelMap::FromNames(listing.classes, path));
  std::vector<FileSet::Entry> entries;
  for (const ImageFolderSource::ListedImage& image : listing.images) {
    FileSet::Entry entry;
    entry.path = image.path;
    entry.image.filename = BaseName(image.path);
    entry.image.source_id = absl::StrCat(image.class_name, "/", entry.image.filename);
    entry.image.label = label_map.Find(image.class_name);
    entry.image.label_text = image.class_name;
    if (!entry.image.label) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": the class folder \"", image.class_name, "\" is not in the label map"));
    }
    entries.push_back(std::move(entry));
  }
  return std::make_unique<FileSet>(files, std::move(label_map), std::move(entries));
}

absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenIdx(FileSystem* files, const std::string& input,
                                                      const std::string& split,
                                                      const std::optional<LabelMap>& given) {
  const std::string prefix = JoinPath(input, split == "test" ? "t10k" : split);
  const auto find = [&](const char* suffix) {
    const std::string plain = absl::StrCat(prefix, suffix);
    const std::string gzip = absl::StrCat(plain, ".gz");
    return !files->GetInfo(plain).ok() && files->GetInfo(gzip).ok() ? gzip : plain;
  };
  PP_ASSIGN_OR_RETURN(std::unique_ptr<ImageSource> source,
                      IdxSource::Open(find("-images-idx3-ubyte"), find("-labels-idx1-ubyte"),
                                      given ? given->num_classes() : kMaxIdxClasses));
  if (given) return std::make_unique<IdxSet>(std::move(source), *given, split);
  int32_t highest = 0;
  Example example;
  for (int64_t i = 0; i < source->size(); ++i) {
    PP_RETURN_IF_ERROR(source->Get(i, &example));
    highest = std::max(highest, example.label);
  }
  std::vector<std::string> names;
  for (int32_t label = 0; label <= highest; ++label) names.push_back(absl::StrCat(label));
  PP_ASSIGN_OR_RETURN(LabelMap label_map, LabelMap::FromNames(names, prefix));
  return std::make_unique<IdxSet>(std::move(source), std::move(label_map), split);
}

}  // namespace

std::optional<SetFormat> ParseSetFormat(absl::string_view name) {
  if (name == "voc") return SetFormat::kVoc;
  if (name == "coco") return SetFormat::kCoco;
  if (name == "image_folder") return SetFormat::kImageFolder;
  if (name == "idx") return SetFormat::kIdx;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<AnnotatedSet>> OpenAnnotatedSet(
    FileSystem* files, SetFormat format, const std::string& input, const std::string& split,
    const std::optional<LabelMap>& label_map) {
  switch (format) {
    case SetFormat::kVoc:
      return OpenVoc(files, input, split, label_map);
    case SetFormat::kCoco:
      return OpenCoco(files, input, split, label_map);
    case SetFormat::kImageFolder:
      return OpenFolder(files, input, split, label_map);
    case SetFormat::kIdx:
      return OpenIdx(files, input, split, label_map);
  }
  return absl::InternalError("a set format without a reader");
}

}  // namespace pushpull
