// Writes a timeline of a process as a Chrome trace, which chrome://tracing and Perfetto show:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// The file is a JSON array with one event per line. A background thread appends whole lines every
// flush_interval, and the closing bracket at Close. The viewers accept a file without the bracket,
// so the trace of a killed process can be read; only its last flush_interval is missing. The file
// holds at most max_bytes: later events are counted and left out, with a warning in the log and a
// mark in the trace.
//
// Traced code holds a TraceRow*. A null pointer means that tracing is off, which costs one
// comparison.
#ifndef PUSHPULL_COMMON_TRACE_TRACE_WRITER_H_
#define PUSHPULL_COMMON_TRACE_TRACE_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "common/base/monotonic_wait.h"
#include "common/trace/clock_offset.h"

namespace pushpull {

class TraceWriter;

struct TraceArg {
  absl::string_view name;
  std::variant<uint64_t, absl::string_view> value;
};

// One row of the timeline: a sequence of spans. Owned by its TraceWriter; thread-safe.
class TraceRow {
 public:
  // Adds a span from `begin` to `end` on this process's steady clock. Cuts off what overlaps the
  // span added before, because viewers cannot show overlapping spans in one row.
  void Add(absl::string_view name, absl::Duration begin, absl::Duration end,
           absl::Span<const TraceArg> args = {});

 private:
  friend class TraceWriter;
  TraceRow(TraceWriter* writer, int process, int row)
      : writer_(writer), process_(process), row_(row) {}

  TraceWriter* const writer_;
  const int process_;
  const int row_;
  int64_t last_end_ = INT64_MIN;  // in nanoseconds; guarded by the writer's mutex
};

struct TraceWriterOptions {
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration flush_interval = absl::Milliseconds(500);
  const ClockOffset* clock = nullptr;  // to the trace's clock; null: it is this process's clock
};

// Thread-safe. Only Create and Close block on the disk.
class TraceWriter {
 public:
  // Creates or replaces the file. `files` and options.clock must outlive the writer.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Create(FileSystem* files,
                                                             const std::string& path,
                                                             const TraceWriterOptions& options);
  ~TraceWriter();  // as Close
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Returns row `row` of a process; viewers show lower rows above. The first call for a process or
  // a row sets its name; later calls with the same numbers return the same row and ignore the
  // names. The row lives as long as the writer.
  TraceRow* Row(int process, absl::string_view process_name, int row, absl::string_view row_name);

  // Writes the remaining events and closes the array; later spans are dropped. Returns the first
  // error of any write.
  absl::Status Close();

 private:
  friend class TraceRow;
  TraceWriter(std::string path, std::unique_ptr<WritableFile> file,
              const TraceWriterOptions& options);

  void AddSpan(TraceRow* row, absl::string_view name, absl::Duration begin, absl::Duration end,
               absl::Span<const TraceArg> args);
  void AddMetadata(absl::string_view kind, int process, int row, absl::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends one event. If the file is full, appends the mark instead once, and counts the event.
  void AddLine(absl::string_view event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFlusher();

  const std::string path_;
  const TraceWriterOptions options_;
  const std::unique_ptr<WritableFile> file_;  // used by the flusher thread only
  absl::Mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<TraceRow>> rows_ ABSL_GUARDED_BY(mutex_);
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // in the file and in the buffer
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar due_;  // notified when the buffer reaches kFlushBytes or closed_ becomes true
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread flusher_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_TRACE_WRITER_H_
