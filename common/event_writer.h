// Writes a TensorBoard event file: one new file per start, in the folder of the run. Thread-safe.
// What was added reaches the file within the flush interval (a thread of its own) and at Close or
// destruction.
#ifndef PUSHPULL_COMMON_EVENT_WRITER_H_
#define PUSHPULL_COMMON_EVENT_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "common/file_system.h"
#include "common/monotonic_wait.h"
#include "protos/event.pb.h"

namespace pushpull {

struct ScalarSummary {
  std::string tag;
  double value = 0.0;
};

struct EventWriterOptions {
  absl::Duration flush_interval = absl::Seconds(10);
  std::function<absl::Time()> now = absl::Now;  // wall time, as TensorBoard shows it
};

class EventWriter {
 public:
  // Creates <directory>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, folders included. `files`
  // must outlive the writer.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Create(FileSystem* files,
                                                             const std::string& directory,
                                                             EventWriterOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void AddScalars(int64_t step, absl::Span<const ScalarSummary> scalars);
  // encoded: PNG or JPEG; channels 1, 3 or 4.
  void AddImage(int64_t step, absl::string_view tag, int height, int width, int channels,
                absl::string_view encoded);
  // An error stays: a file that could not be written once is not written again.
  absl::Status Flush();
  absl::Status Close();
  const std::string& path() const { return path_; }

 private:
  EventWriter(std::string path, std::unique_ptr<WritableFile> file, EventWriterOptions options);

  void Add(event::Event event);
  absl::Status FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFlusher();

  const std::string path_;
  const EventWriterOptions options_;
  absl::Mutex mutex_;
  std::unique_ptr<WritableFile> file_ ABSL_GUARDED_BY(mutex_);
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar closed_changed_;  // told when closed_ becomes true
  std::thread flusher_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_EVENT_WRITER_H_
