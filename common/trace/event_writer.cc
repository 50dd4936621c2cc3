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
constexpr size_t kMostBufferedBytes = size_t{1} << 20;  // bounds memory: images are large

double ToSeconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<EventWriter>> EventWriter::Create(FileSystem* files,
                                                                 const std::string& directory,
                                                                 EventWriterOptions options) {
  PP_RETURN_IF_ERROR(MakeDirectories(*files, directory));
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  const absl::Time now = options.now();
  std::string path;
  std::unique_ptr<WritableFile> file;
  // The name counts in seconds, and one process may create two writers within a second.
  for (int n = 0; file == nullptr; ++n) {
    path = JoinPath(directory, absl::StrFormat("events.out.tfevents.%010d.%s.%d.%d",
                                               absl::ToUnixSeconds(now), host.data(), getpid(), n));
    absl::StatusOr<std::unique_ptr<WritableFile>> opened =
        files->OpenForWrite(path, FileSystem::WriteMode::kCreateNew);
    if (absl::IsAlreadyExists(opened.status()) && n < kMaxNameAttempts) continue;
    PP_RETURN_IF_ERROR(opened.status());
    file = *std::move(opened);
  }
  std::unique_ptr<EventWriter> writer(
      new EventWriter(std::move(path), std::move(file), std::move(options)));
  event::Event first;
  first.set_file_version("brain.Event:2");
  first.mutable_source_metadata()->set_writer("pushpull");
  writer->Add(std::move(first));
  PP_RETURN_IF_ERROR(writer->Flush());
  return writer;
}

EventWriter::EventWriter(std::string path, std::unique_ptr<WritableFile> file,
                         EventWriterOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      file_(std::move(file)),
      flusher_([this] { RunFlusher(); }) {}

EventWriter::~EventWriter() {
  if (absl::Status status = Close(); !status.ok()) LOG(WARNING) << status.message();
}

void EventWriter::Add(event::Event event) {
  event.set_wall_time(ToSeconds(options_.now()));
  absl::MutexLock lock(&mutex_);
  if (closed_ || !status_.ok()) return;
  AppendRecord(event.SerializeAsString(), &buffer_);
  if (buffer_.size() >= kMostBufferedBytes) FlushLocked().IgnoreError();  // kept in status_
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

absl::Status EventWriter::FlushLocked() {
  if (!status_.ok() || buffer_.empty()) return status_;
  status_ = file_->Append(buffer_);
  buffer_.clear();
  if (!status_.ok()) {
    LOG(ERROR) << "no more events are written to " << path_ << ": " << status_.message();
  }
  return status_;
}

absl::Status EventWriter::Flush() {
  absl::MutexLock lock(&mutex_);
  return FlushLocked();
}

absl::Status EventWriter::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return status_;
    closed_ = true;
    closed_changed_.NotifyAll();
    if (FlushLocked().ok()) status_ = file_->Close();
    file_.reset();
  }
  flusher_.join();
  absl::MutexLock lock(&mutex_);
  return status_;
}

void EventWriter::RunFlusher() {
  absl::MutexLock lock(&mutex_);
  const auto closed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; };
  while (!closed_changed_.Await(&mutex_, closed, options_.flush_interval)) {
    FlushLocked().IgnoreError();  // kept in status_
  }
}

}  // namespace pushpull
