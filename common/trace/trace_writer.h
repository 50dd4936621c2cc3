// Writes what a process did when as a Chrome trace, which chrome://tracing and Perfetto show:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// The file is a JSON array with one event per line. It is written as the process goes, whole lines
// at a time, and the closing bracket last: the viewers do without it, so what a killed process
// leaves can be read, less its last moments (flush_interval). The file holds at most max_bytes;
// what comes later is counted and left out, with a warning and a mark in the trace.
//
// Whoever traces holds a TraceRow*; null means that nothing is traced and costs one comparison.
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

#include "common/file_system.h"
#include "common/monotonic_wait.h"
#include "common/trace/clock_offset.h"

namespace pushpull {

class TraceWriter;

struct TraceArg {
  absl::string_view name;
  std::variant<uint64_t, absl::string_view> value;
};

// One line of the picture: spans one after the other. Belongs to its writer; thread-safe.
class TraceRow {
 public:
  // Something went on from `begin` to `end`, by the process's own clock. What overlaps the span
  // added before is cut off: viewers show no overlapping spans in a row.
  void Add(absl::string_view name, absl::Duration begin, absl::Duration end,
           absl::Span<const TraceArg> args = {});

 private:
  friend class TraceWriter;
  TraceRow(TraceWriter* writer, int process, int row)
      : writer_(writer), process_(process), row_(row) {}

  TraceWriter* const writer_;
  const int process_;
  const int row_;
  int64_t last_end_ = INT64_MIN;  // nanoseconds; the writer's mutex guards it
};

struct TraceWriterOptions {
  int64_t max_bytes = int64_t{64} << 20;
  absl::Duration flush_interval = absl::Milliseconds(500);
  const ClockOffset* clock = nullptr;  // null: the own clock is the trace's
};

// Thread-safe. No call but Create and Close waits for the disk.
class TraceWriter {
 public:
  // Replaces the file. `files` and options.clock must outlive the writer.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Create(FileSystem* files,
                                                             const std::string& path,
                                                             const TraceWriterOptions& options);
  ~TraceWriter();  // as Close
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Row number `row` of a process; lower numbers stand above. The names count at the first call
  // with the numbers, later ones return the same row.
  TraceRow* Row(int process, absl::string_view process_name, int row, absl::string_view row_name);

  // Writes what is left and closes the array; later spans are dropped. The first error there was.
  absl::Status Close();

 private:
  friend class TraceRow;
  TraceWriter(std::string path, std::unique_ptr<WritableFile> file,
              const TraceWriterOptions& options);

  void AddSpan(TraceRow* row, absl::string_view name, absl::Duration begin, absl::Duration end,
               absl::Span<const TraceArg> args);
  void AddMetadata(absl::string_view kind, int process, int row, absl::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends one event, or says that the file is full.
  void AddLine(absl::string_view event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFlusher();

  const std::string path_;
  const TraceWriterOptions options_;
  const std::unique_ptr<WritableFile> file_;  // the flusher's
  absl::Mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<TraceRow>> rows_ ABSL_GUARDED_BY(mutex_);
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // written or in the buffer
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar due_;  // told when the buffer has become full enough or closed_ true
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread flusher_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_TRACE_WRITER_H_
