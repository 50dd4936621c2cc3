#include "common/trace/event_writer.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "common/base/record_io.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

std::vector<event::Event> ReadEvents(FileSystem& files, const std::string& path) {
  const auto file = files.OpenForRead(path);
  EXPECT_TRUE(file.ok()) << file.status();
  RecordReader reader(file->get(), path);
  std::vector<event::Event> events;
  std::string record;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return events;
    EXPECT_TRUE(events.emplace_back().ParseFromString(record));
  }
}

EventWriterOptions At(int64_t seconds) {
  EventWriterOptions options;
  options.now = [seconds] { return absl::FromUnixSeconds(seconds); };
  return options;
}

TEST(EventWriter, WritesWhatTensorBoardReads) {
  MemoryFileSystem files;
  auto writer = EventWriter::Create(&files, "/d/train", At(1700000000));
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_THAT((*writer)->path(), testing::StartsWith("/d/train/events.out.tfevents.1700000000."));
  (*writer)->AddScalars(7, {{"Loss/total_loss", 2.5}, {"learning_rate", 0.001}});
  (*writer)->AddImage(8, "image", 2, 3, 3, "png bytes");
  (*writer)->AddGraph("graph bytes");
  ASSERT_EQ((*writer)->Close(), absl::OkStatus());

  const std::vector<event::Event> events = ReadEvents(files, (*writer)->path());
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1700000000.0);
  EXPECT_EQ(events[1].step(), 7);
  ASSERT_EQ(events[1].summary().value_size(), 2);
  EXPECT_EQ(events[1].summary().value(0).tag(), "Loss/total_loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 2.5f);
  EXPECT_EQ(events[1].summary().value(1).simple_value(), 0.001f);
  EXPECT_EQ(events[2].summary().value(0).image().encoded_image_string(), "png bytes");
  EXPECT_EQ(events[3].graph_def(), "graph bytes");
}

TEST(EventWriter, WritesANewFilePerStart) {
  MemoryFileSystem files;
  const auto first = EventWriter::Create(&files, "/d", At(5));
  const auto second = EventWriter::Create(&files, "/d", At(5));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE((*first)->path(), (*second)->path());
}

TEST(EventWriter, FlushesByItself) {
  MemoryFileSystem files;
  EventWriterOptions options;
  options.flush_interval = absl::Milliseconds(1);
  auto writer = EventWriter::Create(&files, "/d", options);
  ASSERT_TRUE(writer.ok());
  (*writer)->AddScalars(1, {{"x", 1.0}});
  // The loop ends once the thread has written. If it never does, the test times out.
  while (ReadEvents(files, (*writer)->path()).size() < 2)
    SteadyClock().Sleep(absl::Milliseconds(1));
}

TEST(EventWriter, ReportsAFailedWriteOnceAndStaysFailed) {
  MemoryFileSystem files;
  auto writer = EventWriter::Create(&files, "/d", At(5));
  ASSERT_TRUE(writer.ok());
  files.SetFault(FileFault{FileFault::Kind::kDiskFull, 0});
  (*writer)->AddScalars(1, {{"x", 1.0}});
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Flush()));
  (*writer)->AddScalars(2, {{"x", 1.0}});
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Close()));
  EXPECT_EQ(ReadEvents(files, (*writer)->path()).size(), 1);
}

// The Python reader shares no code with ours.
TEST(EventWriter, PythonReadsTheSameEvents) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  const std::string folder = testing::TempDir() + "/events_" + std::to_string(getpid());
  PosixFileSystem files;
  auto writer = EventWriter::Create(&files, folder, At(1700000000));
  ASSERT_TRUE(writer.ok()) << writer.status();
  (*writer)->AddScalars(7, {{"Loss/total_loss", 2.5}});
  (*writer)->AddScalars(-1, {{"accuracy", 0.5}});
  ASSERT_EQ((*writer)->Close(), absl::OkStatus());
  const std::string out = folder + "/out.txt";
  ASSERT_EQ(std::system(absl::StrCat("python3 ", PUSHPULL_SOURCE_DIR,
                                     "/tests/common/read_formats.py events ", (*writer)->path(),
                                     " > ", out)
                            .c_str()),
            0);
  EXPECT_EQ(*ReadWholeFile(files, out),
            "1700000000.0 0 version brain.Event:2\n"
            "1700000000.0 7 Loss/total_loss 2.5\n"
            "1700000000.0 -1 accuracy 0.5\n");
  ASSERT_EQ(RemoveRecursively(files, folder), absl::OkStatus());
}

}  // namespace
}  // namespace pushpull
