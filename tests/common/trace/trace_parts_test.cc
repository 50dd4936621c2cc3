#include "common/trace/trace_parts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/trace/trace_writer.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

class TracePartsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(StartTrace(files_, "/trace"), absl::OkStatus()); }

  std::string WritePart(int clone, int pid, int spans) {
    const std::string path = TracePartPath("/trace", clone, pid);
    auto writer = TraceWriter::Create(&files_, path, {});
    EXPECT_TRUE(writer.ok()) << writer.status();
    TraceRow* const row =
        (*writer)->Row(TraceProcessOfClone(clone), absl::StrCat("clone ", clone), 1, "training");
    for (int i = 0; i < spans; ++i) {
      row->Add("compute", absl::Seconds(i), absl::Seconds(i + 1), {{"step", uint64_t(i)}});
    }
    EXPECT_EQ((*writer)->Close(), absl::OkStatus());
    return *ReadWholeFile(files_, path);
  }
  json Merged() {
    EXPECT_EQ(MergeTraceParts(files_, "/trace"), absl::OkStatus());
    return json::parse(*ReadWholeFile(files_, "/trace"));
  }

  MemoryFileSystem files_;
};

TEST_F(TracePartsTest, StartsEmpty) {
  EXPECT_EQ(json::parse(*ReadWholeFile(files_, "/trace")), json::array());
  EXPECT_EQ(Merged(), json::array());
}

TEST_F(TracePartsTest, MergesAllPartsAndRemovesThem) {
  size_t events = 0;
  events += json::parse(WritePart(0, 100, 3)).size();
  events += json::parse(WritePart(1, 101, 0)).size();
  events += json::parse(WritePart(0, 207, 5)).size();  // the same clone after a restart
  const json merged = Merged();
  EXPECT_EQ(merged.size(), events);
  EXPECT_THAT(*files_.List("/"), ElementsAre("trace"));
  EXPECT_EQ(Merged(), json::array()) << "the second merge finds nothing";
}

TEST_F(TracePartsTest, ATruncatedPartKeepsItsWholeLines) {
  const std::string whole = WritePart(0, 1, 2);
  const json all = json::parse(whole);
  size_t most = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    ASSERT_EQ(WriteFileAtomically(files_, TracePartPath("/trace", 0, 1), whole.substr(0, size)),
              absl::OkStatus());
    ASSERT_EQ(WriteFileAtomically(files_, TracePartPath("/trace", 1, 2), whole), absl::OkStatus());
    const json merged = Merged();
    ASSERT_GE(merged.size(), all.size()) << size;
    const size_t cut = merged.size() - all.size();
    ASSERT_GE(cut, most) << size;
    most = cut;
    for (size_t i = 0; i < cut; ++i) ASSERT_EQ(merged[i], all[i]) << size;
  }
  EXPECT_EQ(most, all.size());
}

TEST_F(TracePartsTest, RemovesPartsOfAnEarlierWorkerAtTheStart) {
  WritePart(0, 1, 2);
  ASSERT_EQ(WriteFileAtomically(files_, "/trace2", "mine"), absl::OkStatus());
  ASSERT_EQ(StartTrace(files_, "/trace"), absl::OkStatus());
  EXPECT_THAT(*files_.List("/"), ElementsAre("trace", "trace2"));
}

// Only the names that TracePartPath makes are those of parts.
TEST_F(TracePartsTest, LeavesFilesOfOthersAlone) {
  const std::vector<std::string> strangers = {
      "trace.clone",      "trace.clone-1.2", "trace.clone.5",     "trace.clone0",
      "trace.clone0.",    "trace.clone0.07", "trace.clone0.1.gz", "trace.clone0.txt",
      "trace.clone00.1",  "trace.clone0_1",  "trace.clone1 .2",   "trace.clone_backup.tar",
      "trace.clones.txt", "trace2.clone0.1"};
  for (const std::string& name : strangers) {
    ASSERT_EQ(WriteFileAtomically(files_, "/" + name, "{\"a\": 1}"), absl::OkStatus());
  }
  std::vector<std::string> left = strangers;
  left.push_back("trace");
  WritePart(0, 1, 2);
  ASSERT_EQ(StartTrace(files_, "/trace"), absl::OkStatus());
  EXPECT_THAT(*files_.List("/"), UnorderedElementsAreArray(left));
  const size_t events = json::parse(WritePart(0, 1, 2)).size();
  EXPECT_EQ(Merged().size(), events);
  EXPECT_THAT(*files_.List("/"), UnorderedElementsAreArray(left));
}

TEST_F(TracePartsTest, KeepsThePartsIfTheMergeFails) {
  WritePart(0, 1, 2);
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 1, true});
  EXPECT_FALSE(MergeTraceParts(files_, "/trace").ok());
  files_.SetFault(std::nullopt);
  EXPECT_EQ(Merged().size(), 6);
}

TEST_F(TracePartsTest, ProcessNumbersAreUnique) {
  EXPECT_NE(TraceProcessOfTask(0), TraceProcessOfClone(0));
  EXPECT_LT(TraceProcessOfTask(999), TraceProcessOfClone(0));
}

}  // namespace
}  // namespace pushpull
