#include "worker/data/voc_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "worker/data/check_examples.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_sources.h"
#include "worker/data/voc_annotations.h"

namespace pushpull {
namespace {

// Logs the first lines of the list, each with `ending`, and the number of all if it is larger.
void LogBoxes(absl::string_view source, const std::vector<std::string>& boxes,
              absl::string_view ending, absl::string_view done) {
  const size_t logged = std::min<size_t>(boxes.size(), kMaxLoggedBoxes);
  for (size_t i = 0; i < logged; ++i) LOG(WARNING) << boxes[i] << ending;
  LOG_IF(WARNING, boxes.size() > logged)
      << source << ": " << boxes.size() << " boxes are " << done << " in all";
}

}  // namespace

absl::StatusOr<std::unique_ptr<VocSource>> VocSource::Open(std::unique_ptr<FileSystem> files,
                                                           const std::string& path,
                                                           const std::string& split,
                                                           const LabelMap& label_map,
                                                           int num_classes, StoppedFn stopped) {
  PP_RETURN_IF_ERROR(label_map.CheckFits(num_classes));
  auto source = std::unique_ptr<VocSource>(new VocSource(std::move(files), num_classes));
  source->class_names_ = label_map.class_names(num_classes);
  PP_RETURN_IF_ERROR(source->Load(path, split, label_map, stopped));
  LOG_IF(WARNING, !source->issues_.unknown_classes.empty())
      << source->name_ << ": " << DescribeUnknownClasses(label_map, source->issues_.unknown_classes)
      << "; every box of such a class is left out";
  LogBoxes(source->name_, source->issues_.left_out, "; the box is left out", "left out");
  LogBoxes(source->name_, source->issues_.clipped, "", "clipped");
  return source;
}

absl::Status VocSource::Load(const std::string& path, const std::string& split,
                             const LabelMap& label_map, StoppedFn stopped) {
  name_ = absl::StrCat(path, " split ", split);
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> ids, ReadVocSplit(*files_, path, split));
  PP_ASSIGN_OR_RETURN(std::vector<std::string> image_paths, FindVocImages(*files_, path, ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (stopped()) return absl::CancelledError(absl::StrCat("stopped while opening ", name_));
    const std::string annotation = VocAnnotationPath(path, ids[i]);
    PP_ASSIGN_OR_RETURN(const std::string xml, ReadWholeFile(*files_, annotation));
    PP_ASSIGN_OR_RETURN(AnnotatedImage image, ParseVocAnnotation(xml, annotation));
    Entry entry{std::move(image_paths[i]), image.height, image.width, {}};
    for (AnnotatedObject& object : image.objects) {
      const BoxFinding finding = ResolveObject(label_map, &object);
      if (finding.usable()) entry.boxes.push_back(object.box);
      issues_.Add(absl::StrCat(annotation, " object ", object.index), finding);
    }
    images_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

std::string VocSource::describe() const {
  return absl::StrCat("Pascal VOC ", name_, ": ", size(), " images, ", num_classes(), " classes, ",
                      issues_.left_out.size(), " boxes left out");
}

std::string VocSource::identity() const {
  uint32_t crc = 0;
  for (const Entry& entry : images_) {
    std::string text = entry.image_path;
    for (const Box& box : entry.boxes) {
      absl::StrAppendFormat(&text, "\n%a %a %a %a %d %a %d", box.ymin, box.xmin, box.ymax, box.xmax,
                            box.label, box.weight, box.difficult);
    }
    crc = ExtendCrc32c(crc, text.c_str(), text.size() + 1);
  }
  return absl::StrCat(describe(), "\nboxes ", crc);
}

absl::Status VocSource::Get(int64_t index, Example* example) const {
  PP_RETURN_IF_ERROR(GetEncoded(index, example));
  return DecodeIfJpeg(&example->image);
}

absl::Status VocSource::GetEncoded(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  const Entry& entry = images_[index];
  PP_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(*files_, entry.image_path));
  PP_RETURN_IF_ERROR(DecodeAllButJpeg(std::move(bytes), entry.image_path, &example->image));
  PP_RETURN_IF_ERROR(
      CheckAnnotatedSize(entry.image_path, example->image, entry.height, entry.width));
  example->label = 0;
  example->boxes = entry.boxes;
  return absl::OkStatus();
}

absl::Status VocSource::Check(ThreadPool* pool, StoppedFn stopped) const {
  return CheckExamples(*this, name_, pool, stopped,
                       [this](int64_t i, Example* example) { return Get(i, example); });
}

SourceOrError OpenSource(const config::VocInputReader& reader, const SourceOptions& options) {
  return VocSource::Open(std::make_unique<PosixFileSystem>(), options.Path(reader.path()),
                         reader.split(), *options.label_map, options.num_classes, options.stopped);
}

}  // namespace pushpull
