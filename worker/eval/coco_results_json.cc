#include "worker/eval/coco_results_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

absl::Status CheckDetection(int64_t image_id, size_t index, const DetectedBox& detection) {
  const PixelBox& box = detection.box;
  const bool finite = std::isfinite(box.xmin) && std::isfinite(box.ymin) &&
                      std::isfinite(box.xmax - box.xmin) && std::isfinite(box.ymax - box.ymin) &&
                      std::isfinite(detection.score);
  if (finite && detection.label >= 0 && detection.label < std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "image ", image_id, ", detection ", index, ": label ", detection.label, ", box [", box.ymin,
      ", ", box.xmin, ", ", box.ymax, ", ", box.xmax, "], score ", detection.score,
      " cannot be written as a COCO result: a label from 0 and finite numbers expected"));
}

void AppendNumber(float number, std::string* out) {
  char digits[32];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits), number);
  out->append(digits, result.ptr);
}

void AppendResult(int64_t image_id, const DetectedBox& detection, std::string* out) {
  const PixelBox& box = detection.box;
  absl::StrAppend(out, "{\"image_id\":", image_id, ",\"category_id\":", detection.label + 1,
                  ",\"bbox\":[");
  AppendNumber(box.xmin, out);
  for (float number : {box.ymin, box.xmax - box.xmin, box.ymax - box.ymin}) {
    out->push_back(',');
    AppendNumber(number, out);
  }
  absl::StrAppend(out, "],\"score\":");
  AppendNumber(detection.score, out);
  out->push_back('}');
}

}  // namespace

absl::StatusOr<std::unique_ptr<CocoResultsWriter>> CocoResultsWriter::Create(
    FileSystem* files, const std::string& path) {
  if (FileNameOf(path).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write COCO results (eval_config.export_path) to '", path,
                     "', expected the path of a file"));
  }
  PP_ASSIGN_OR_RETURN(TemporaryFile temporary, CreateTemporaryFile(*files, path));
  return std::unique_ptr<CocoResultsWriter>(
      new CocoResultsWriter(files, path, std::move(temporary)));
}

CocoResultsWriter::CocoResultsWriter(FileSystem* files, std::string path, TemporaryFile temporary)
    : files_(files),
      path_(std::move(path)),
      temporary_(std::move(temporary.path)),
      file_(std::move(temporary.file)),
      buffer_("[") {}

CocoResultsWriter::~CocoResultsWriter() {
  if (!published_) files_->RemoveFile(temporary_).IgnoreError();
}

absl::Status CocoResultsWriter::Add(int64_t image_id, const std::vector<DetectedBox>& detections) {
  PP_RETURN_IF_ERROR(status_);
  for (size_t i = 0; i < detections.size(); ++i) {
    PP_RETURN_IF_ERROR(CheckDetection(image_id, i, detections[i]));
  }
  for (const DetectedBox& detection : detections) {
    absl::StrAppend(&buffer_, first_ ? "\n" : ",\n");
    first_ = false;
    AppendResult(image_id, detection, &buffer_);
    if (buffer_.size() >= kBufferBytes) PP_RETURN_IF_ERROR(status_ = Flush());
  }
  return absl::OkStatus();
}

absl::Status CocoResultsWriter::Flush() {
  PP_RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status CocoResultsWriter::Publish() {
  absl::StrAppend(&buffer_, "\n]\n");
  PP_RETURN_IF_ERROR(Flush());
  PP_RETURN_IF_ERROR(file_->Sync());
  PP_RETURN_IF_ERROR(file_->Close());
  PP_RETURN_IF_ERROR(files_->Rename(temporary_, path_));
  published_ = true;
  return files_->SyncDirectory(FolderOf(path_));
}

absl::Status CocoResultsWriter::Finish() {
  PP_RETURN_IF_ERROR(status_);
  status_ = Publish();
  return status_;
}

}  // namespace pushpull
