#include "common/trace/trace_parts.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr absl::string_view kInfix = ".clone";

// Says whether TracePartPath gives a part of the trace this name. `trace_name` and `name` have no
// folder. Other files that begin in the same way belong to the user.
bool IsPart(const std::string& trace_name, const std::string& name) {
  absl::string_view numbers = name;
  if (!absl::ConsumePrefix(&numbers, trace_name) || !absl::ConsumePrefix(&numbers, kInfix)) {
    return false;
  }
  const std::pair<absl::string_view, absl::string_view> texts =
      absl::StrSplit(numbers, absl::MaxSplits('.', 1));
  int clone = 0;
  int pid = 0;
  return absl::SimpleAtoi(texts.first, &clone) && absl::SimpleAtoi(texts.second, &pid) &&
         clone >= 0 && pid > 0 && TracePartPath(trace_name, clone, pid) == name;
}

absl::StatusOr<std::vector<std::string>> ListParts(FileSystem& files, const std::string& path) {
  const std::string folder = FolderOf(path);
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    if (IsPart(FileNameOf(path), name)) parts.push_back(JoinPath(folder, name));
  }
  return parts;
}

// Returns the events of a part as text to append to the merged trace. `first` says that the merged
// trace has no event yet.
std::string EventsOf(absl::string_view part, bool first) {
  std::string events;
  for (absl::string_view line : absl::StrSplit(part, '\n')) {
    // A killed process may have cut the last line anywhere, even after a comma within the event, so
    // it counts only if it parses.
    const bool last = line.data() + line.size() == part.data() + part.size();
    absl::ConsumeSuffix(&line, ",");
    if (!absl::StartsWith(line, "{")) continue;
    if (last && !nlohmann::json::accept(line.begin(), line.end())) continue;
    absl::StrAppend(&events, first && events.empty() ? "\n" : ",\n", line);
  }
  return events;
}

}  // namespace

std::string TracePartPath(const std::string& path, int clone, int pid) {
  return absl::StrCat(path, kInfix, clone, ".", pid);
}

absl::Status StartTrace(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files.OpenForWrite(path, FileSystem::WriteMode::kTruncate));
  PP_RETURN_IF_ERROR(file->Append("[\n]\n"));
  PP_RETURN_IF_ERROR(file->Close());
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> parts, ListParts(files, path));
  for (const std::string& part : parts) PP_RETURN_IF_ERROR(files.RemoveFile(part));
  return absl::OkStatus();
}

absl::Status MergeTraceParts(FileSystem& files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> parts, ListParts(files, path));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files.OpenForWrite(path, FileSystem::WriteMode::kTruncate));
  PP_RETURN_IF_ERROR(file->Append("["));
  bool first = true;
  for (const std::string& part : parts) {
    PP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, part));
    const std::string events = EventsOf(text, first);
    first = first && events.empty();
    PP_RETURN_IF_ERROR(file->Append(events));
  }
  PP_RETURN_IF_ERROR(file->Append("\n]\n"));
  PP_RETURN_IF_ERROR(file->Close());
  // Remove the parts last, so that no event is lost if the merge fails.
  for (const std::string& part : parts) PP_RETURN_IF_ERROR(files.RemoveFile(part));
  return absl::OkStatus();
}

}  // namespace pushpull
