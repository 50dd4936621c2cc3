#include "worker/eval/coco_results_reader.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "worker/eval/coco_results_json.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kReadPath[] = "eval/results.json";
constexpr int64_t kImages = 3;
constexpr int kClasses = 2;

class CocoResultsReaderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.MakeDirectory("eval").ok()); }

  absl::StatusOr<std::vector<std::vector<DetectedBox>>> Read() {
    return ReadCocoResults(files_, kReadPath, kImages, kClasses,
                           "the number of an example of eval_input_reader");
  }
  absl::Status ReadText(const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(files_, kReadPath, text).ok());
    return Read().status();
  }

  MemoryFileSystem files_;
};

TEST_F(CocoResultsReaderTest, ReadsWhatTheWriterWrites) {
  auto writer = CocoResultsWriter::Create(&files_, kReadPath);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Add(2, {{{10, 20.5f, 30, 60}, 1, 0.875f}, {{-1, 0, 1, 2}, 0, 1}}).ok());
  ASSERT_TRUE((*writer)->Add(0, {{{0, 0, 5, 4}, 0, 0.1f}}).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto images = Read();
  ASSERT_TRUE(images.ok()) << images.status();
  ASSERT_EQ(images->size(), 3u);
  EXPECT_EQ((*images)[0].size(), 1u);
  EXPECT_TRUE((*images)[1].empty());
  ASSERT_EQ((*images)[2].size(), 2u);
  const DetectedBox& first = (*images)[2][0];
  EXPECT_EQ(first.label, 1);
  EXPECT_EQ(first.score, 0.875f);
  EXPECT_EQ(first.box.ymin, 10);
  EXPECT_EQ(first.box.xmin, 20.5f);
  EXPECT_EQ(first.box.ymax, 30);
  EXPECT_EQ(first.box.xmax, 60);
  EXPECT_EQ((*images)[2][1].label, 0);
}

TEST_F(CocoResultsReaderTest, IgnoresOtherFieldsAndReadsAnEmptyArray) {
  EXPECT_EQ(ReadText("[]"), absl::OkStatus());
  EXPECT_EQ(ReadText(R"([{"id": 7, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4],
                          "score": 0.5, "area": 12}])"),
            absl::OkStatus());
}

TEST_F(CocoResultsReaderTest, NamesTheFileTheResultAndItsField) {
  const std::string good =
      R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5})";
  const struct {
    std::string result;
    std::string message;
  } cases[] = {
      {"3", "it is not an object"},
      {R"({"category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5})",
       "image_id is nothing, expected 0 to 2"},
      {R"({"image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5})",
       "image_id is 3, expected 0 to 2, the number of an example of eval_input_reader"},
      {R"({"image_id": -1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5})",
       "image_id is -1"},
      {R"({"image_id": 18446744073709551615, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 1})",
       "image_id is 18446744073709551615"},
      {R"({"image_id": 1.0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5})",
       "image_id is 1.0"},
      {R"({"image_id": 0, "category_id": 0, "bbox": [1, 2, 3, 4], "score": 0.5})",
       "category_id is 0, expected 1 to 2, the id of a class"},
      {R"({"image_id": 0, "category_id": "1", "bbox": [1, 2, 3, 4], "score": 0.5})",
       "category_id is \"1\""},
      {R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3], "score": 0.5})",
       "bbox is [1,2,3], expected four finite numbers"},
      {R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 1e300], "score": 0.5})", "bbox is"},
      {R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, null], "score": 0.5})", "bbox is"},
      {R"({"image_id": 0, "category_id": 1, "score": 0.5})", "bbox is nothing"},
      {R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": "high"})",
       "score is \"high\", expected a finite number"},
      {R"({"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]})", "score is nothing"},
  };
  for (const auto& bad : cases) {
    const absl::Status status = ReadText("[" + good + ", " + bad.result + "]");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.result;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("eval/results.json, result 1: " + bad.message));
  }
}

TEST_F(CocoResultsReaderTest, RefusesWhatIsNoArray) {
  EXPECT_THAT(std::string(ReadText("{}").message()), HasSubstr("is not a JSON array"));
  // Each part of a good file that is cut off is refused.
  const std::string good =
      R"([{"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}])";
  ASSERT_EQ(ReadText(good), absl::OkStatus());
  for (size_t size = 0; size < good.size(); ++size) {
    const absl::Status status = ReadText(good.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("eval/results.json")) << size;
  }
  EXPECT_FALSE(ReadText("[{\"image_id\": \"\xff\"}]").ok());
  ASSERT_TRUE(files_.RemoveFile(kReadPath).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pushpull
