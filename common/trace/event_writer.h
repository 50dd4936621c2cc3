// Writes a TensorBoard event file. Each start of a process creates a new file in the run's folder.
//
// Thread-safe. Events are buffered. A background thread writes the buffer to the file every
// EventWriterOptions::flush_interval, and earlier once it holds 256 KiB. Flush, Close and the
// destructor write it at once.
//
// After a failed write the last record of the file may be incomplete. So the writer goes on in a
// new file: it keeps the events and tries again at a later flush, at least retry_pause after the
// failure. Some events may be in both files.
//
// Events beyond 1 MiB that is not written yet are lost, with one warning until a write succeeds.
// That happens after a failure, and while the disk does not answer.
#ifndef PUSHPULL_COMMON_TRACE_EVENT_WRITER_H_
#define PUSHPULL_COMMON_TRACE_EVENT_WRITER_H_

#include <cstddef>
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

#include "common/base/file_system.h"
#include "common/base/monotonic_wait.h"
#include "protos/event.pb.h"

namespace pushpull {

struct ScalarSummary {
  std::string tag;
  double value = 0.0;
};

struct EventWriterOptions {
  absl::Duration flush_interval = absl::Seconds(10);
  absl::Duration retry_pause = absl::Minutes(1);  // between two attempts after a failure, at least
  std::function<absl::Time()> now = absl::Now;    // TensorBoard shows wall time
};

class EventWriter {
 public:
  // Creates <directory>/events.out.tfevents.<seconds>.<host>.<pid>.<n> and any missing folders.
  // `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<EventWriter>> Create(FileSystem* files,
                                                             const std::string& directory,
                                                             EventWriterOptions options = {});
  // Returns a writer whose file is created by its first flush, in a folder that exists. If the file
  // cannot be created, the writer behaves as after a failed write.
  static std::unique_ptr<EventWriter> CreateAtFirstFlush(FileSystem* files, std::string directory,
                                                         EventWriterOptions options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Each adds one event, and never waits for the disk. After Close they do nothing.
  void AddScalars(int64_t step, absl::Span<const ScalarSummary> scalars);
  // `encoded` is a PNG or JPEG file; `channels` is 1, 3 or 4.
  void AddImage(int64_t step, absl::string_view tag, int height, int width, int channels,
                absl::string_view encoded);
  // graph_def: a serialized GraphDef (protos/graph_def.proto). TensorBoard's Graphs tab shows the
  // newest one of a folder.
  void AddGraph(std::string graph_def);
  // Both write the buffer and block on the disk, also until the background thread's write ends.
  // They return the error of the last write until one succeeds. Flush does not try to write during
  // a pause after a failure, and Close does.
  absl::Status Flush();
  absl::Status Close();
  // Returns the newest file; empty if none could be created yet.
  std::string path() const;

 private:
  EventWriter(FileSystem* files, std::string directory, EventWriterOptions options);

  void Add(event::Event event);
  // Creates a new file with its first event and `events`. Leaves none after an error.
  absl::Status OpenFile(absl::string_view events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  absl::Status OpenFirstFile();
  // Writes the buffer, into a new file if none is open. Puts the events back if that fails. Logs
  // the first failure and the first success after it.
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  // Returns whether the buffer has events and no failure is too recent.
  bool IsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_, mutex_);
  void RunFlusher();

  FileSystem* const files_;
  const std::string directory_;
  const EventWriterOptions options_;
  absl::Mutex file_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held during all I/O
  std::unique_ptr<WritableFile> file_
      ABSL_GUARDED_BY(file_mutex_);  // null before the first and after a failure
  absl::Time failed_at_ ABSL_GUARDED_BY(file_mutex_);

  mutable absl::Mutex mutex_;  // never held during I/O
  std::string path_ ABSL_GUARDED_BY(mutex_);
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  size_t writing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // taken from the buffer by a running Write
  bool has_left_out_ ABSL_GUARDED_BY(mutex_) = false;  // an event, since the last write
  absl::Status status_ ABSL_GUARDED_BY(mutex_);        // of the last write
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar due_;  // notified when the buffer reaches kWakeBytes or closed_ becomes true
  std::thread flusher_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_EVENT_WRITER_H_
