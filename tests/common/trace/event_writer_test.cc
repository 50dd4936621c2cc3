#include "common/trace/event_writer.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "common/base/record_io.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/test_folder.h"
#include "tests/testkit/warning_sink.h"

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

// A disk that fails while the test says so, and a wall clock that the test sets.
class FailingEventWriterTest : public ::testing::Test {
 protected:
  FailingEventWriterTest() {
    EXPECT_EQ(files_.MakeDirectory("/d"), absl::OkStatus());
    options_.flush_interval = absl::InfiniteDuration();
    options_.now = [this] { return now_; };
  }
  void FailCall(int64_t call, FileFault::Kind kind = FileFault::Kind::kDiskFull) {
    files_.SetFault(FileFault{kind, call});
  }
  static std::vector<int64_t> Steps(const std::vector<event::Event>& events) {
    std::vector<int64_t> steps;
    for (const event::Event& event : events) steps.push_back(event.step());
    return steps;
  }

  MemoryFileSystem files_;
  EventWriterOptions options_;
  absl::Time now_ = absl::FromUnixSeconds(5);
};

TEST_F(FailingEventWriterTest, GoesOnInANewFileAfterAPause) {
  auto writer = EventWriter::Create(&files_, "/d", options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string first = (*writer)->path();
  FailCall(0);
  (*writer)->AddScalars(1, {{"x", 1.0}});
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Flush()));
  now_ += options_.retry_pause - absl::Seconds(1);
  (*writer)->AddScalars(2, {{"x", 1.0}});
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Flush()));
  EXPECT_EQ(files_.calls(), 1) << "no attempt during the pause";
  now_ += absl::Seconds(1);
  EXPECT_EQ((*writer)->Flush(), absl::OkStatus());
  EXPECT_NE((*writer)->path(), first);
  EXPECT_EQ(ReadEvents(files_, first).size(), 1u);
  const std::vector<event::Event> events = ReadEvents(files_, (*writer)->path());
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(Steps(events), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ((*writer)->Close(), absl::OkStatus());
}

TEST_F(FailingEventWriterTest, AnIncompleteRecordIsRepeatedInTheNextFile) {
  auto writer = EventWriter::Create(&files_, "/d", options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  FailCall(0, FileFault::Kind::kShortWrite);
  (*writer)->AddScalars(1, {{"x", 1.0}});
  EXPECT_FALSE((*writer)->Flush().ok());
  EXPECT_EQ((*writer)->Close(), absl::OkStatus()) << "Close does not wait for the pause";
  EXPECT_EQ(Steps(ReadEvents(files_, (*writer)->path())), (std::vector<int64_t>{0, 1}));
}

TEST_F(FailingEventWriterTest, AFailedAttemptLeavesNoFile) {
  auto writer = EventWriter::Create(&files_, "/d", options_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  (*writer)->AddScalars(1, {{"x", 1.0}});
  FailCall(0);
  EXPECT_FALSE((*writer)->Flush().ok());
  for (const int64_t call : {0, 1}) {  // the new file cannot be created, or not written
    FailCall(call);
    now_ += options_.retry_pause;
    EXPECT_FALSE((*writer)->Flush().ok()) << call;
    EXPECT_EQ(files_.List("/d")->size(), 1u) << call;
  }
  now_ -= absl::Hours(1);
  EXPECT_EQ((*writer)->Flush(), absl::OkStatus())
      << "a clock that is set back makes no longer pause";
  EXPECT_EQ(files_.List("/d")->size(), 2u);
}

TEST_F(FailingEventWriterTest, KeepsABoundedBuffer) {
  const auto writer = EventWriter::CreateAtFirstFlush(&files_, "/d", options_);
  FailCall(0);
  writer->AddScalars(1, {{"x", 1.0}});
  EXPECT_FALSE(writer->Flush().ok());
  const WarningSink log;
  const std::string image(size_t{1} << 19, 'x');
  for (int64_t step = 2; step <= 6; ++step) writer->AddImage(step, "image", 1, 1, 3, image);
  EXPECT_EQ(log.Count("events for TensorBoard are left out"), 1);
  EXPECT_EQ(writer->Close(), absl::OkStatus());
  EXPECT_EQ(Steps(ReadEvents(files_, writer->path())), (std::vector<int64_t>{0, 1, 2, 3}));
}

// A disk that does not answer, such as a lost network file system, holds up no thread that trains.
TEST(EventWriter, AddsEventsWhileAWriteHangs) {
  MemoryFileSystem files;
  EventWriterOptions options;
  options.flush_interval = absl::InfiniteDuration();
  auto writer = EventWriter::Create(&files, "/d", options);
  ASSERT_TRUE(writer.ok()) << writer.status();
  absl::Notification hangs, answers;
  files.BeforeAppend([&] {
    if (!hangs.HasBeenNotified()) hangs.Notify();
    answers.WaitForNotification();
  });
  const std::string image(size_t{1} << 19, 'x');
  (*writer)->AddImage(1, "image", 1, 1, 3, image);  // enough to wake the background thread
  hangs.WaitForNotification();
  for (int64_t step = 2; step <= 5; ++step) (*writer)->AddImage(step, "image", 1, 1, 3, image);
  EXPECT_NE((*writer)->path(), "");
  files.SetFault(FileFault{FileFault::Kind::kShortWrite, 0});  // then the write fails
  answers.Notify();
  EXPECT_EQ((*writer)->Close(), absl::OkStatus());
  std::vector<int64_t> steps;
  for (const event::Event& event : ReadEvents(files, (*writer)->path())) {
    steps.push_back(event.step());
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2})) << "1 MiB is kept, in order";
}

TEST_F(FailingEventWriterTest, TheFirstFlushCreatesTheFile) {
  const auto writer = EventWriter::CreateAtFirstFlush(&files_, "/d", options_);
  EXPECT_EQ(writer->path(), "");
  EXPECT_TRUE(files_.List("/d")->empty());
  FailCall(0);
  writer->AddGraph("graph bytes");
  EXPECT_FALSE(writer->Flush().ok());
  now_ += options_.retry_pause;
  EXPECT_EQ(writer->Flush(), absl::OkStatus());
  EXPECT_EQ(ReadEvents(files_, writer->path()).at(1).graph_def(), "graph bytes");
}

TEST_F(FailingEventWriterTest, CreateReportsAFailure) {
  for (const int64_t call : {1, 2}) {  // the first call looks whether the folder is there
    FailCall(call);
    EXPECT_TRUE(absl::IsResourceExhausted(EventWriter::Create(&files_, "/d", options_).status()))
        << call;
    EXPECT_TRUE(files_.List("/d")->empty()) << call;
  }
}

// The Python reader shares no code with ours.
TEST(EventWriter, PythonReadsTheSameEvents) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  const TestFolder folder;
  PosixFileSystem files;
  auto writer = EventWriter::Create(&files, folder.path(), At(1700000000));
  ASSERT_TRUE(writer.ok()) << writer.status();
  (*writer)->AddScalars(7, {{"Loss/total_loss", 2.5}});
  (*writer)->AddScalars(-1, {{"accuracy", 0.5}});
  ASSERT_EQ((*writer)->Close(), absl::OkStatus());
  const std::string out = folder.path() + "/out.txt";
  ASSERT_EQ(std::system(absl::StrCat("python3 ", PUSHPULL_SOURCE_DIR,
                                     "/tests/common/read_formats.py events ", (*writer)->path(),
                                     " > ", out)
                            .c_str()),
            0);
  EXPECT_EQ(*ReadWholeFile(files, out),
            "1700000000.0 0 version brain.Event:2\n"
            "1700000000.0 7 Loss/total_loss 2.5\n"
            "1700000000.0 -1 accuracy 0.5\n");
}

}  // namespace
}  // namespace pushpull
