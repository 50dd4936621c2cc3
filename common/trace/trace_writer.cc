#include "common/trace/trace_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace pushpull {
namespace {

constexpr absl::string_view kBegin = "[";
constexpr absl::string_view kEnd = "\n]\n";
constexpr int64_t kReservedBytes = 256;  // for the mark that the trace is full, and for kEnd
constexpr size_t kFlushBytes = size_t{256} << 10;
// If a span ends this long before the row's last one, the trace's clock has changed: the server was
// restarted on another host.
constexpr int64_t kOtherClockNanoseconds = 1'000'000'000;

std::string Quoted(absl::string_view text) { return JsonLine(nlohmann::json(std::string(text))); }

// The format counts in microseconds and allows fractions.
std::string Microseconds(int64_t nanoseconds) {
  const int64_t whole = nanoseconds / 1000;
  const int64_t rest = nanoseconds % 1000;
  return absl::StrFormat("%s%d.%03d", nanoseconds < 0 ? "-" : "", std::abs(whole), std::abs(rest));
}

}  // namespace

void TraceRow::Add(absl::string_view name, absl::Duration begin, absl::Duration end,
                   absl::Span<const TraceArg> args) {
  writer_->AddSpan(this, name, begin, end, args);
}

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Create(
    FileSystem* files, const std::string& path, const TraceWriterOptions& options) {
  PP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      files->OpenForWrite(path, FileSystem::WriteMode::kTruncate));
  PP_RETURN_IF_ERROR(file->Append(kBegin));
  return std::unique_ptr<TraceWriter>(new TraceWriter(path, std::move(file), options));
}

TraceWriter::TraceWriter(std::string path, std::unique_ptr<WritableFile> file,
                         const TraceWriterOptions& options)
    : path_(std::move(path)),
      options_(options),
      file_(std::move(file)),
      bytes_(static_cast<int64_t>(kBegin.size())),
      flusher_([this] { RunFlusher(); }) {}

TraceWriter::~TraceWriter() {
  if (const absl::Status status = Close(); !status.ok()) LOG(WARNING) << status.message();
}

TraceRow* TraceWriter::Row(int process, absl::string_view process_name, int row,
                           absl::string_view row_name) {
  absl::MutexLock lock(&mutex_);
  const auto first = rows_.lower_bound({process, INT32_MIN});
  const bool new_process = first == rows_.end() || first->first.first != process;
  std::unique_ptr<TraceRow>& slot = rows_[{process, row}];
  if (slot == nullptr) {
    slot.reset(new TraceRow(this, process, row));
    if (new_process) AddMetadata("process", process, row, process_name);
    AddMetadata("thread", process, row, row_name);
  }
  return slot.get();
}

void TraceWriter::AddMetadata(absl::string_view kind, int process, int row,
                              absl::string_view name) {
  AddLine(absl::StrFormat(R"({"name":"%s_name","ph":"M","pid":%d,"tid":%d,"args":{"name":%s}})",
                          kind, process, row, Quoted(name)));
  AddLine(absl::StrFormat(
      R"({"name":"%s_sort_index","ph":"M","pid":%d,"tid":%d,"args":{"sort_index":%d}})", kind,
      process, row, kind == "process" ? process : row));
}

void TraceWriter::AddSpan(TraceRow* row, absl::string_view name, absl::Duration begin,
                          absl::Duration end, absl::Span<const TraceArg> args) {
  std::string text;
  for (const TraceArg& arg : args) {
    absl::StrAppend(&text, text.empty() ? "" : ",", Quoted(arg.name), ":");
    if (const auto* number = std::get_if<uint64_t>(&arg.value)) {
      absl::StrAppend(&text, *number);
    } else {
      absl::StrAppend(&text, Quoted(std::get<absl::string_view>(arg.value)));
    }
  }
  if (options_.clock != nullptr) {
    const absl::Duration length = end - begin;
    end = options_.clock->ToRemote(end);
    begin = end - length;
  }
  int64_t from = absl::ToInt64Nanoseconds(begin);
  int64_t to = absl::ToInt64Nanoseconds(end);
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  if (row->last_end_ > INT64_MIN + kOtherClockNanoseconds &&
      to < row->last_end_ - kOtherClockNanoseconds) {
    row->last_end_ = INT64_MIN;
  }
  from = std::max(from, row->last_end_);
  to = std::max(to, from);
  AddLine(absl::StrFormat(R"({"name":%s,"ph":"X","ts":%s,"dur":%s,"pid":%d,"tid":%d,"args":{%s}})",
                          Quoted(name), Microseconds(from), Microseconds(to - from), row->process_,
                          row->row_, text));
  row->last_end_ = to;
}

void TraceWriter::AddLine(absl::string_view event) {
  if (left_out_ > 0) {
    ++left_out_;
    return;
  }
  const int64_t size = static_cast<int64_t>(event.size()) + 2;
  std::string mark;
  if (bytes_ + size + kReservedBytes > options_.max_bytes) {
    left_out_ = 1;
    LOG(WARNING) << path_ << " is full (" << options_.max_bytes
                 << " bytes): what comes from now on is not in the trace";
    const auto latest = std::max_element(
        rows_.begin(), rows_.end(),
        [](const auto& a, const auto& b) { return a.second->last_end_ < b.second->last_end_; });
    if (latest == rows_.end() || latest->second->last_end_ == INT64_MIN) return;
    mark = absl::StrFormat(
        R"({"name":"the trace is full","ph":"i","s":"g","ts":%s,"pid":%d,"tid":%d})",
        Microseconds(latest->second->last_end_), latest->first.first, latest->first.second);
    event = mark;
  }
  // The comma comes before the event, so the file may end after any event.
  const size_t before = buffer_.size();
  const bool first = bytes_ == static_cast<int64_t>(kBegin.size());
  absl::StrAppend(&buffer_, first ? "\n" : ",\n", event);
  if (before < kFlushBytes && buffer_.size() >= kFlushBytes) due_.NotifyAll();
  bytes_ += static_cast<int64_t>(buffer_.size() - before);
}

absl::Status TraceWriter::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    due_.NotifyAll();
  }
  if (flusher_.joinable()) {
    flusher_.join();
    absl::MutexLock lock(&mutex_);
    LOG_IF(WARNING, left_out_ > 0) << path_ << " was full: " << left_out_ << " events left out";
  }
  absl::MutexLock lock(&mutex_);
  return status_;
}

void TraceWriter::RunFlusher() {
  bool last = false;
  while (!last) {
    std::string lines;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closed_ || buffer_.size() >= kFlushBytes;
      };
      due_.Await(&mutex_, due, options_.flush_interval);
      last = closed_;
      lines.swap(buffer_);
      if (!status_.ok()) continue;
    }
    if (last) absl::StrAppend(&lines, kEnd);
    if (lines.empty()) continue;
    absl::Status status = file_->Append(lines);
    if (last && status.ok()) status = file_->Close();
    if (status.ok()) continue;
    LOG(ERROR) << "no more is written to the trace " << path_ << ": " << status.message();
    absl::MutexLock lock(&mutex_);
    status_ = status;
  }
}

}  // namespace pushpull
