#include "common/trace/event_writer.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/record_io.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace pushpull {
namespace {

constexpr int kMaxNameAttempts = 1000;
constexpr size_t kWakeBytes = size_t{256} << 10;
constexpr size_t kMaxUnwrittenBytes = size_t{1} << 20;  // bounds memory: images are large

double ToSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Create(FileSystem* files,
                                                                 const std::string& directory,
                                                                 EventWriterOptions options) {
  PP_RETURN_IF_ERROR(MakeDirectories(*files, directory));
  std::unique_ptr<EventWriter> writer(new EventWriter(files, directory, std::move(options)));
  PP_RETURN_IF_ERROR(writer->OpenFirstFile());
  return writer;
}

std::unique_ptr<EventWriter> EventWriter::CreateAtFirstFlush(FileSystem* files,
                                                             std::string directory,
                                                             EventWriterOptions options) {
  return std::unique_ptr<EventWriter>(
      new EventWriter(files, std::move(directory), std::move(options)));
}

EventWriter::EventWriter(FileSystem* files, std::string directory, EventWriterOptions options)
    : files_(files),
      directory_(std::move(directory)),
      options_(std::move(options)),
      flusher_([this] { RunFlusher(); }) {}

EventWriter::~EventWriter() {
  if (absl::Status status = Close(); !status.ok()) LOG(WARNING) << status.message();
}

void EventWriter::Add(event::Event event) {
  event.set_wall_time(ToSeconds(options_.now()));
  const std::string record = event.SerializeAsString();
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  if (buffer_.size() + writing_bytes_ >= kMaxUnwrittenBytes) {
    LOG_IF(WARNING, !std::exchange(has_left_out_, true))
        << "events for TensorBoard are left out, because " << kMaxUnwrittenBytes << " bytes are "
        << "not written yet: look whether the disk of " << directory_ << " is full or hangs";
    return;
  }
  AppendRecord(record, &buffer_);
  if (buffer_.size() >= kWakeBytes) due_.NotifyAll();
}

void EventWriter::AddScalars(int64_t step, absl::Span<const ScalarSummary> scalars) {
  event::Event event;
  event.set_step(step);
  for (const ScalarSummary& scalar : scalars) {
    event::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(ValidUtf8(scalar.tag));
    value->set_simple_value(static_cast<float>(scalar.value));
  }
  Add(std::move(event));
}

void EventWriter::AddImage(int64_t step, absl::string_view tag, int height, int width, int channels,
                           absl::string_view encoded) {
  event::Event event;
  event.set_step(step);
  event::Summary::Value* value = event.mutable_summary()->add_value();
  value->set_tag(ValidUtf8(tag));
  event::Summary::Image* image = value->mutable_image();
  image->set_height(height);
  image->set_width(width);
  image->set_colorspace(channels);
  image->set_encoded_image_string(std::string(encoded));
  Add(std::move(event));
}

void EventWriter::AddGraph(std::string graph_def) {
  event::Event event;
  event.set_graph_def(std::move(graph_def));
  Add(std::move(event));
}

absl::Status EventWriter::OpenFile(absl::string_view events) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  const absl::Time now = options_.now();
  std::string path;
  std::unique_ptr<WritableFile> file;
  // The name counts in seconds, and one process may create two files within a second.
  for (int n = 0; file == nullptr; ++n) {
    path =
        JoinPath(directory_, absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d",
                                             absl::ToUnixSeconds(now), host.data(), getpid(), n));
    absl::StatusOr<std::unique_ptr<WritableFile>> opened =
        files_->OpenForWrite(path, FileSystem::WriteMode::kCreateNew);
    if (absl::IsAlreadyExists(opened.status()) && n < kMaxNameAttempts) continue;
    PP_RETURN_IF_ERROR(opened.status());
    file = *std::move(opened);
  }
  event::Event first;
  first.set_wall_time(ToSeconds(now));
  first.set_file_version("brain.Event:2");
  first.mutable_source_metadata()->set_writer("pushpull");
  std::string contents;
  AppendRecord(first.SerializeAsString(), &contents);
  contents.append(events.data(), events.size());
  if (absl::Status status = file->Append(contents); !status.ok()) {
    files_->RemoveFile(path).IgnoreError();
    return status;
  }
  file_ = std::move(file);
  absl::MutexLock lock(&mutex_);
  path_ = std::move(path);
  return absl::OkStatus();
}

absl::Status EventWriter::OpenFirstFile() {
  absl::MutexLock lock(&file_mutex_);
  return OpenFile("");
}

absl::Status EventWriter::Write() {
  std::string events;
  {
    absl::MutexLock lock(&mutex_);
    events.swap(buffer_);
    writing_bytes_ = events.size();
  }
  const absl::Status written = file_ == nullptr ? OpenFile(events) : file_->Append(events);
  absl::MutexLock lock(&mutex_);
  writing_bytes_ = 0;
  if (written.ok()) {
    LOG_IF(INFO, !status_.ok()) << "events for TensorBoard are written again, to " << path_;
    has_left_out_ = false;
  } else {
    LOG_IF(ERROR, status_.ok()) << "events for TensorBoard cannot be written to " << directory_
                                << ", next attempt in "
                                << absl::FormatDuration(options_.retry_pause) << ": "
                                << written.message();
    failed_at_ = options_.now();
    file_.reset();
    buffer_.insert(0, events);
  }
  status_ = written;
  return status_;
}

bool EventWriter::IsDue() const {
  if (buffer_.empty()) return false;
  const absl::Duration since = options_.now() - failed_at_;
  // The wall clock may have been set back.
  return status_.ok() || since < absl::ZeroDuration() || since >= options_.retry_pause;
}

absl::Status EventWriter::Flush() {
  absl::MutexLock file_lock(&file_mutex_);
  {
    absl::MutexLock lock(&mutex_);
    if (!IsDue()) return status_;
  }
  return Write();
}

absl::Status EventWriter::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return status_;
    closed_ = true;
    due_.NotifyAll();
  }
  flusher_.join();
  absl::MutexLock file_lock(&file_mutex_);
  bool empty = false;
  {
    absl::MutexLock lock(&mutex_);
    empty = buffer_.empty();
  }
  const bool written = empty || Write().ok();
  absl::Status closed;
  if (written && file_ != nullptr) closed = file_->Close();
  file_.reset();
  absl::MutexLock lock(&mutex_);
  if (!closed.ok()) status_ = closed;
  return status_;
}

std::string EventWriter::path() const {
  absl::MutexLock lock(&mutex_);
  return path_;
}

void EventWriter::RunFlusher() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closed_ || (status_.ok() && buffer_.size() >= kWakeBytes);
      };
      due_.Await(&mutex_, due, options_.flush_interval);
      if (closed_) return;
    }
    Flush().IgnoreError();  // kept in status_
  }
}

}  // namespace pushpull
