// Tested by tests/worker/data/record_boxes_test.cc.
#include "worker/data/record_source.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/record_io.h"
#include "common/base/status_macros.h"
#include "worker/data/check_examples.h"
#include "worker/data/example_codec.h"
#include "worker/data/image_sources.h"
#include "worker/data/record_files.h"

namespace pushpull {
namespace {

// Adds the record's number to the message of a RecordReader, which begins with the path.
absl::Status RecordError(int64_t record, const absl::Status& status) {
  return Annotated(status, absl::StrCat("record ", record, " of ", status.message()));
}

}  // namespace

RecordSource::RecordSource(RecordSourceOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<RecordSource>> RecordSource::Open(FileSystem& files,
                                                                 RecordSourceOptions options,
                                                                 StoppedFn stopped) {
  if (options.label_map) {
    PP_RETURN_IF_ERROR(options.label_map->CheckFits(options.num_classes));
  }
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ExpandRecordPaths(options.input_paths));
  auto source = std::unique_ptr<RecordSource>(new RecordSource(std::move(options)));
  for (const std::string& path : paths) {
    File file;
    file.path = path;
    PP_ASSIGN_OR_RETURN(file.file, files.OpenForRead(path));
    PP_ASSIGN_OR_RETURN(const FileInfo info, files.GetInfo(path));
    file.modification_time = info.modification_time;
    PP_RETURN_IF_ERROR(source->Index(std::move(file), stopped));
  }
  if (source->records_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(paths.front(), paths.size() > 1 ? " ..." : "",
                                                   ": no record in ", paths.size(), " files"));
  }
  return source;
}

absl::Status RecordSource::Index(File file, StoppedFn stopped) {
  file.first = size();
  RecordReader reader(file.file.get(), file.path);
  while (true) {
    if (stopped()) return absl::CancelledError(absl::StrCat("stopped while opening ", file.path));
    const int64_t offset = reader.offset();
    const absl::StatusOr<bool> more = reader.Skip();
    if (!more.ok()) return RecordError(size() - file.first, more.status());
    if (!*more) break;
    records_.push_back({offset, static_cast<int32_t>(files_.size())});
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

std::vector<std::string> RecordSource::class_names() const {
  return options_.label_map ? options_.label_map->class_names(options_.num_classes)
                            : ImageSource::class_names();
}

std::string RecordSource::describe() const {
  return absl::StrCat("TFRecords ", files_.front().path,
                      files_.size() > 1 ? absl::StrCat(" ... ", files_.back().path) : "", " (",
                      files_.size(), files_.size() == 1 ? " file" : " files", "): ", size(),
                      " images, ", num_classes(), " classes");
}

std::string RecordSource::identity() const {
  std::string text = describe();
  for (const File& file : files_) {
    absl::StrAppend(&text, "\n", file.path, " ", file.file->size_bytes(), " ",
                    file.modification_time);
  }
  if (options_.label_map) absl::StrAppend(&text, "\n", options_.label_map->ToText());
  return text;
}

absl::Status RecordSource::ReadRecord(int64_t index, bool keep_jpeg, Example* example,
                                      BoxIssues* issues) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  const Record& record = records_[index];
  const File& file = files_[record.file];
  const int64_t number = index - file.first;
  RecordReader reader(file.file.get(), file.path, record.offset);
  std::string bytes;
  const absl::StatusOr<bool> got = reader.Next(&bytes);
  if (!got.ok()) return RecordError(number, got.status());
  const ExampleDecoding decoding{options_.label_map ? &*options_.label_map : nullptr,
                                 options_.num_classes, options_.annotation, keep_jpeg};
  return DecodeExample(
      bytes, absl::StrCat("record ", number, " of ", file.path, " at byte ", record.offset),
      decoding, example, issues);
}

absl::Status RecordSource::ReadAndLog(int64_t index, bool keep_jpeg, Example* example) const {
  BoxIssues issues;
  PP_RETURN_IF_ERROR(ReadRecord(index, keep_jpeg, example, &issues));
  if (!issues.left_out.empty()) NoteLeftOut(index, issues);
  for (const std::string& box : issues.left_out)
    LogBox(box, "; the box is left out", &num_left_out_logged_);
  for (const std::string& box : issues.clipped) LogBox(box, "", &num_clipped_logged_);
  return absl::OkStatus();
}

void RecordSource::NoteLeftOut(int64_t index, const BoxIssues& issues) const {
  absl::MutexLock lock(&mutex_);
  if (first_left_out_.empty() || index < first_left_out_index_) {
    first_left_out_index_ = index;
    first_left_out_ = issues.left_out.front();
  }
  for (const auto& [name, num_boxes] : issues.unknown_classes) {
    if (classes_logged_.size() >= kMaxLoggedBoxes) return;
    if (!classes_logged_.insert(name).second) continue;
    LOG(WARNING) << UnknownClass(*options_.label_map, name).problem
                 << "; every box of this class is left out";
  }
}

std::string RecordSource::first_box_left_out() const {
  absl::MutexLock lock(&mutex_);
  return first_left_out_;
}

std::string RecordSource::CheckCommand() const {
  return options_.label_map
             ? absl::StrCat("make_records --check with --label_map=", options_.label_map->source())
             : "make_records --check";
}

void RecordSource::LogBox(absl::string_view box, absl::string_view ending,
                          std::atomic<int>* num_logged) const {
  if (num_logged->load(std::memory_order_relaxed) >= kMaxLoggedBoxes) return;
  const int number = num_logged->fetch_add(1, std::memory_order_relaxed);
  if (number >= kMaxLoggedBoxes) return;
  LOG(WARNING) << box << ending
               << (number + 1 == kMaxLoggedBoxes ? absl::StrCat(" (further ones are not logged; ",
                                                                CheckCommand(), " lists all)")
                                                 : "");
}

absl::Status RecordSource::Check(ThreadPool* pool, StoppedFn stopped) const {
  absl::Mutex mutex;
  int64_t num_left_out = 0;
  int64_t num_clipped = 0;
  std::map<std::string, int64_t> unknown_classes;
  const absl::Status status =
      CheckExamples(*this, describe(), pool, stopped, [&](int64_t i, Example* example) {
        BoxIssues issues;
        const absl::Status read = Read(i, example, &issues);
        if (!issues.left_out.empty()) NoteLeftOut(i, issues);
        absl::MutexLock lock(&mutex);
        num_left_out += static_cast<int64_t>(issues.left_out.size());
        num_clipped += static_cast<int64_t>(issues.clipped.size());
        for (const auto& [name, num_boxes] : issues.unknown_classes) {
          unknown_classes[name] += num_boxes;
        }
        return read;
      });
  LOG_IF(WARNING, !unknown_classes.empty())
      << describe() << ": " << DescribeUnknownClasses(*options_.label_map, unknown_classes)
      << "; every box of such a class is left out";
  LOG_IF(WARNING, num_left_out > 0)
      << describe() << ": " << num_left_out << " boxes cannot be used and are left out; "
      << CheckCommand() << " lists them";
  LOG_IF(WARNING, num_clipped > 0)
      << describe() << ": " << num_clipped << " boxes reach outside their images and are clipped; "
      << CheckCommand() << " lists them";
  return status;
}

std::string RecordSource::place_of_boxes() const {
  if (options_.annotation != Annotation::kBoxes) return "";
  return "the keys image/object/bbox/{ymin,xmin,ymax,xmax} and image/object/class/{text,label}";
}

SourceOrError OpenSource(const config::TFRecordInputReader& reader, const SourceOptions& options) {
  RecordSourceOptions records;
  for (const std::string& path : reader.input_path()) {
    records.input_paths.push_back(absl::StrContains(path, "://") ? path : options.Path(path));
  }
  records.label_map = options.label_map;
  records.num_classes = options.num_classes;
  records.annotation = options.annotation;
  PosixFileSystem files;
  return RecordSource::Open(files, std::move(records), options.stopped);
}

}  // namespace pushpull
