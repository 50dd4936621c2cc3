#include "common/trace/event_files.h"

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"

#include "common/base/record_io.h"
#include "protos/event.pb.h"

namespace pushpull {
namespace {

// An event file begins with its version, and that of a server with a graph, so the third record has
// the first scalars.
constexpr int kRecordsToRead = 3;

bool HasScalars(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForRead(path);
  if (!file.ok()) return false;
  RecordReader reader(file->get(), path);
  std::string record;
  for (int i = 0; i < kRecordsToRead && reader.Next(&record).value_or(false); ++i) {
    event::Event event;
    if (event.ParseFromString(record) && event.has_summary() && event.step() > 0) return true;
  }
  return false;
}

}  // namespace

std::string FindTrainedEvents(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  if (!names.ok()) return "";
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    if (absl::StartsWith(name, "events.out.tfevents.") && HasScalars(files, path)) return path;
  }
  return "";
}

}  // namespace pushpull
