#include "common/trace/event_files.h"

#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/trace/event_writer.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

// Writes an event file whose name has this time, and returns its path. step: of its scalars; 0: it
// has none.
std::string WriteEvents(FileSystem& files, int64_t seconds, const std::string& graph,
                        int64_t step) {
  EventWriterOptions options;
  options.now = [seconds] { return absl::FromUnixSeconds(seconds); };
  const auto writer = EventWriter::Create(&files, "/d", options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  if (!graph.empty()) (*writer)->AddGraph(graph);
  if (step > 0) (*writer)->AddScalars(step, {{"Loss/total_loss", 0.5}});
  EXPECT_TRUE((*writer)->Close().ok());
  return (*writer)->path();
}

TEST(EventFiles, FindsTheScalarsOfAStep) {
  for (const std::string graph : {"", "a graph"}) {
    MemoryFileSystem files;
    EXPECT_EQ(FindTrainedEvents(files, "/d"), "") << "there is no folder";
    WriteEvents(files, 1700000000, graph, 0);
    EXPECT_EQ(FindTrainedEvents(files, "/d"), "") << "no step was written";
    const std::string trained = WriteEvents(files, 1700000001, graph, 7);
    EXPECT_EQ(FindTrainedEvents(files, "/d"), trained);
  }
}

TEST(EventFiles, PassesOverWhatItCannotRead) {
  MemoryFileSystem files;
  const std::string trained = WriteEvents(files, 1700000001, "a graph", 7);
  files.Corrupt("/d/events.out.tfevents.1600000000", "no record");
  EXPECT_EQ(FindTrainedEvents(files, "/d"), trained);
  files.Corrupt(trained, "no record");
  EXPECT_EQ(FindTrainedEvents(files, "/d"), "");
}

}  // namespace
}  // namespace pushpull
