#include "common/trace/trace_writer.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using nlohmann::json;

std::unique_ptr<TraceWriter> Open(FileSystem* files, const TraceWriterOptions& options = {}) {
  auto writer = TraceWriter::Create(files, "/t", options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return *std::move(writer);
}

std::string Contents(FileSystem& files) {
  const auto text = ReadWholeFile(files, "/t");
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::vector<json> Spans(FileSystem& files) {
  std::vector<json> spans;
  for (const json& event : json::parse(Contents(files))) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  return spans;
}

TEST(TraceWriter, WritesSpansAndNames) {
  MemoryFileSystem files;
  auto writer = Open(&files);
  TraceRow* const row = writer->Row(3, "ps task 2", 7, "store");
  EXPECT_EQ(writer->Row(3, "another name", 7, "and another"), row);
  row->Add("apply", absl::Microseconds(1500.25), absl::Microseconds(1510.5),
           {{"step", uint64_t{12}}, {"for", absl::string_view("clone 1")}});
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  row->Add("late", absl::Seconds(9), absl::Seconds(10));

  const json events = json::parse(Contents(files));
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[0], json::parse(R"({"name": "process_name", "ph": "M", "pid": 3, "tid": 7,
                                       "args": {"name": "ps task 2"}})"));
  EXPECT_EQ(events[1]["name"], "process_sort_index");
  EXPECT_EQ(events[2]["args"]["name"], "store");
  EXPECT_EQ(events[3]["args"]["sort_index"], 7);
  EXPECT_EQ(events[4], json::parse(R"({"name": "apply", "ph": "X", "ts": 1500.25, "dur": 10.25,
                                       "pid": 3, "tid": 7, "args": {"step": 12, "for": "clone 1"}})"));
}

TEST(TraceWriter, AnEmptyTraceIsAnEmptyArray) {
  MemoryFileSystem files;
  ASSERT_EQ(Open(&files)->Close(), absl::OkStatus());
  EXPECT_EQ(json::parse(Contents(files)), json::array());
}

TEST(TraceWriter, EscapesTheNamesOfPeers) {
  MemoryFileSystem files;
  const std::string name = "a \"quoted\" \\ name\nwith\tcontrol\x01 and \xff bytes \xc3\xa4";
  auto writer = Open(&files);
  writer->Row(1, name, 1, name)->Add(name, absl::Seconds(1), absl::Seconds(2), {{name, name}});
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  const json span = Spans(files)[0];
  const std::string expected =
      "a \"quoted\" \\ name\nwith\tcontrol\x01 and \xef\xbf\xbd bytes \xc3\xa4";
  EXPECT_EQ(span["name"], expected);
  EXPECT_EQ(span["args"][expected], expected);
}

TEST(TraceWriter, SpansOfARowDoNotOverlap) {
  MemoryFileSystem files;
  auto writer = Open(&files);
  TraceRow* const row = writer->Row(1, "p", 1, "r");
  row->Add("a", absl::Microseconds(10), absl::Microseconds(20));
  row->Add("b", absl::Microseconds(15), absl::Microseconds(30));  // its beginning is cut off
  row->Add("c", absl::Microseconds(12),
           absl::Microseconds(13));  // it lies within the earlier spans and disappears
  row->Add("d", absl::Microseconds(30), absl::Microseconds(31));
  writer->Row(1, "p", 2, "other")->Add("e", absl::Microseconds(5), absl::Microseconds(100));
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  const auto spans = Spans(files);
  ASSERT_EQ(spans.size(), 5);
  const std::vector<std::pair<double, double>> expected = {
      {10, 10}, {20, 10}, {30, 0}, {30, 1}, {5, 95}};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["ts"], expected[i].first) << i;
    EXPECT_EQ(spans[i]["dur"], expected[i].second) << i;
  }
}

TEST(TraceWriter, ConvertsTimesToTheClockOfTheTrace) {
  MemoryFileSystem files;
  ClockOffset clock;
  TraceWriterOptions options;
  options.clock = &clock;
  auto writer = Open(&files, options);
  TraceRow* const row = writer->Row(1, "p", 1, "r");
  clock.AddSample(absl::Seconds(1), absl::Seconds(1), absl::Seconds(101));
  row->Add("a", absl::Seconds(1), absl::Seconds(2));
  // A new clock is far behind: the time steps back in the trace and continues from there.
  clock.AddSample(absl::Seconds(2), absl::Seconds(2), absl::Seconds(12));
  row->Add("b", absl::Seconds(2), absl::Seconds(4));
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  const auto spans = Spans(files);
  EXPECT_EQ(spans[0]["ts"], 101e6);
  EXPECT_EQ(spans[1]["ts"], 12e6);
  EXPECT_EQ(spans[1]["dur"], 2e6);
}

TEST(TraceWriter, StopsAtItsSizeLimitAndSaysSo) {
  MemoryFileSystem files;
  TraceWriterOptions options;
  options.max_bytes = 5000;
  auto writer = Open(&files, options);
  TraceRow* const row = writer->Row(1, "p", 1, "r");
  for (int i = 0; i < 1000; ++i) row->Add("s", absl::Seconds(i), absl::Seconds(i + 1));
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  const std::string text = Contents(files);
  EXPECT_LE(text.size(), 5000);
  EXPECT_GT(text.size(), 4500);
  const json events = json::parse(text);
  EXPECT_EQ(events.back()["name"], "the trace is full");
  EXPECT_EQ(events.back()["ph"], "i");
  const auto spans = Spans(files);
  EXPECT_EQ(events.back()["ts"], spans.back()["ts"].get<double>() + 1e6)
      << "the earliest spans are kept";
  EXPECT_EQ(spans.front()["ts"], 0.0);
}

// If a process is killed, the file holds whole lines of the array. Trace viewers accept the missing
// end.
TEST(TraceWriter, WithoutCloseTheFileOnlyLacksItsEnd) {
  MemoryFileSystem files;
  TraceWriterOptions options;
  options.flush_interval = absl::Milliseconds(1);
  auto writer = Open(&files, options);
  TraceRow* const row = writer->Row(1, "p", 1, "r");
  size_t longest = 0;
  for (int i = 0; longest < 20; ++i) {
    ASSERT_LT(i, 20000) << "the writer has not written to the file";
    row->Add("s", absl::Seconds(i), absl::Seconds(i + 1));
    absl::SleepFor(absl::Milliseconds(1));
    const std::string text = Contents(files);
    const json events = json::parse(text + "]", nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(events.is_discarded()) << text;
    longest = events.size();
  }
}

TEST(TraceWriter, ManyThreadsWriteWholeLines) {
  MemoryFileSystem files;
  TraceWriterOptions options;
  options.flush_interval = absl::Milliseconds(1);
  auto writer = Open(&files, options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        writer->Row(t, "p", i % 3, "r")->Add("s", absl::Seconds(i), absl::Seconds(i + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  EXPECT_EQ(Spans(files).size(), 8000);
}

TEST(TraceWriter, AFullDiskStopsTheTraceAndNothingElse) {
  MemoryFileSystem files;
  TraceWriterOptions options;
  options.flush_interval = absl::Milliseconds(1);
  auto writer = Open(&files, options);
  files.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, true});
  TraceRow* const row = writer->Row(1, "p", 1, "r");
  for (int i = 0; i < 100; ++i) row->Add("s", absl::Seconds(i), absl::Seconds(i + 1));
  EXPECT_EQ(writer->Close().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TraceWriter, NamesAFileThatCannotBeCreated) {
  MemoryFileSystem files;
  const absl::Status status = TraceWriter::Create(&files, "/no/such/folder/t", {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "/no/such/folder/t")) << status;
}

}  // namespace
}  // namespace pushpull
