#include "worker/eval/coco_results_json.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

constexpr char kPath[] = "eval/results.json";

class CocoResultsJsonTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.MakeDirectory("eval").ok()); }

  std::unique_ptr<CocoResultsWriter> Open() {
    auto writer = CocoResultsWriter::Create(&files_, kPath);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return writer.ok() ? *std::move(writer) : nullptr;
  }
  std::string Contents() {
    const auto contents = ReadWholeFile(files_, kPath);
    return contents.ok() ? *contents : std::string(contents.status().message());
  }
  std::vector<std::string> Names() { return *files_.List("eval"); }

  MemoryFileSystem files_;
};

TEST_F(CocoResultsJsonTest, WritesTheFormatThatLoadResReads) {
  const auto writer = Open();
  ASSERT_TRUE(
      writer->Add(397133, {{{10, 20.5f, 30, 60}, 0, 0.875f}, {{0, 0, 1, 2}, 89, 0.1f}}).ok());
  ASSERT_TRUE(writer->Add(5, {}).ok());
  ASSERT_TRUE(writer->Add(6, {{{-1, -2, 3, 4}, 2, 1}}).ok());
  EXPECT_THAT(Names(), testing::ElementsAre(testing::StartsWith(".tmp-results.json-")));
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Contents(),
            "[\n"
            "{\"image_id\":397133,\"category_id\":1,\"bbox\":[20.5,10,39.5,20],\"score\":0.875},\n"
            "{\"image_id\":397133,\"category_id\":90,\"bbox\":[0,0,2,1],\"score\":0.1},\n"
            "{\"image_id\":6,\"category_id\":3,\"bbox\":[-2,-1,6,4],\"score\":1}\n"
            "]\n");
  EXPECT_THAT(Names(), testing::ElementsAre("results.json"));
}

TEST_F(CocoResultsJsonTest, WritesAnEmptyArrayWithoutDetections) {
  ASSERT_TRUE(Open()->Finish().ok());
  EXPECT_EQ(nlohmann::json::parse(Contents()), nlohmann::json::array());
}

TEST_F(CocoResultsJsonTest, ManyResultsKeepTheirExactNumbers) {
  const auto writer = Open();
  std::vector<DetectedBox> detections;
  for (int i = 0; i < 3000; ++i) {
    detections.push_back({{0, 1e-7f * i, 1e20f, 1e-7f * i}, i % 90, 1.0f / (i + 1)});
  }
  ASSERT_TRUE(writer->Add(std::numeric_limits<int64_t>::max(), detections).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const nlohmann::json results = nlohmann::json::parse(Contents());
  ASSERT_EQ(results.size(), 3000);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(results[i]["image_id"].get<int64_t>(), std::numeric_limits<int64_t>::max());
    ASSERT_EQ(results[i]["category_id"].get<int>(), i % 90 + 1);
    ASSERT_EQ(results[i]["bbox"][0].get<float>(), 1e-7f * i);
    ASSERT_EQ(results[i]["bbox"][3].get<float>(), 1e20f);
    ASSERT_EQ(results[i]["score"].get<float>(), 1.0f / (i + 1));
  }
}

TEST_F(CocoResultsJsonTest, KeepsTheOldFileWithoutFinish) {
  ASSERT_TRUE(WriteFileAtomically(files_, kPath, "old").ok());
  ASSERT_TRUE(Open()->Add(1, {{{0, 0, 1, 1}, 0, 0.5f}}).ok());
  EXPECT_EQ(Contents(), "old");
  EXPECT_THAT(Names(), testing::ElementsAre("results.json"));
}

TEST_F(CocoResultsJsonTest, TwoWritersOfOnePathDoNotDisturbEachOther) {
  const auto first = Open();
  const auto second = Open();
  ASSERT_TRUE(first->Add(1, {{{0, 0, 1, 1}, 0, 0.5f}}).ok());
  ASSERT_TRUE(second->Add(2, {}).ok());
  ASSERT_TRUE(first->Finish().ok());
  EXPECT_EQ(nlohmann::json::parse(Contents()).size(), 1);
  ASSERT_TRUE(second->Finish().ok());
  EXPECT_EQ(nlohmann::json::parse(Contents()), nlohmann::json::array());
  EXPECT_THAT(Names(), testing::ElementsAre("results.json"));
}

TEST_F(CocoResultsJsonTest, RefusesNumbersThatJsonCannotHold) {
  const auto writer = Open();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  const DetectedBox bad[] = {{{0, 0, 1, 1}, 0, nan},
                             {{nan, 0, 1, 1}, 0, 0.5f},
                             {{0, -largest, 1, largest}, 0, 0.5f},
                             {{0, 0, 1, 1}, -1, 0.5f},
                             {{0, 0, 1, 1}, std::numeric_limits<int32_t>::max(), 0.5f}};
  for (const DetectedBox& detection : bad) {
    const absl::Status status = writer->Add(8, {{{0, 0, 1, 1}, 0, 0.5f}, detection});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("image 8, detection 1"));
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(nlohmann::json::parse(Contents()), nlohmann::json::array());
}

TEST_F(CocoResultsJsonTest, EveryFailureIsReportedAndLeavesTheOldOrTheNewFile) {
  const std::vector<DetectedBox> many(2000, {{0, 0, 1, 1}, 0, 0.5f});
  int failures = 0;
  for (int call = 0;; ++call) {
    ASSERT_LT(call, 50);
    files_.SetFault(std::nullopt);
    ASSERT_TRUE(WriteFileAtomically(files_, kPath, "old").ok());
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, call, false});
    absl::Status status;
    {
      auto writer = CocoResultsWriter::Create(&files_, kPath);
      status = writer.status();
      if (status.ok()) {
        status = (*writer)->Add(1, many);
        const absl::Status finished = (*writer)->Finish();
        if (!status.ok()) {
          EXPECT_EQ(finished, status) << "call " << call;
        }
        status = finished;
      }
    }
    EXPECT_THAT(Names(), testing::ElementsAre("results.json")) << "call " << call;
    const std::string contents = Contents();
    if (status.ok()) {
      EXPECT_EQ(nlohmann::json::parse(contents).size(), many.size());
      break;
    }
    ++failures;
    if (contents != "old") {
      EXPECT_EQ(nlohmann::json::parse(contents).size(), many.size());
    }
  }
  EXPECT_GE(failures, 6);  // open, two writes, sync, rename, sync of the folder
}

TEST_F(CocoResultsJsonTest, NeedsAFolderAndAName) {
  EXPECT_EQ(CocoResultsWriter::Create(&files_, "absent/results.json").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(CocoResultsWriter::Create(&files_, "eval/").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pushpull
