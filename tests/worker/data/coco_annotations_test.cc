#include "worker/data/coco_annotations.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kJson[] = R"({
  "info": {"id": 7, "bbox": [1, 2], "images": [{"id": 3}]},
  "licenses": [{"id": 1, "name": "x"}],
  "annotations": [
    {"id": 10, "image_id": 200, "category_id": 3, "bbox": [10, 5, 30, 5.5], "area": 99.5,
     "iscrowd": 0, "segmentation": [[1, 2, 3, 4, 5, 6]]},
    {"id": 11, "image_id": 100, "category_id": 90, "bbox": [0, 0, 8, 4], "iscrowd": 1,
     "segmentation": {"counts": [1, 2, 3], "size": [8, 4], "id": 4, "area": 1}}
  ],
  "images": [
    {"id": 100, "file_name": "a.jpg", "width": 8, "height": 4, "license": 1, "extra": null},
    {"id": 200, "file_name": "b.jpg", "width": 40, "height": 20.0},
    {"id": 300, "file_name": "c.jpg", "width": 1, "height": 1}
  ],
  "categories": [{"id": 90, "name": "toothbrush", "supercategory": "s"}, {"id": 3, "name": "car"}]
})";

absl::StatusOr<CocoAnnotations> Read(const std::string& json) {
  std::istringstream stream(json);
  return ReadCocoAnnotations(stream, "a.json");
}

std::string ErrorWith(const std::string& from, const std::string& to) {
  const std::string json = absl::StrReplaceAll(kJson, {{from, to}});
  EXPECT_NE(json, kJson) << from;
  const absl::Status status = Read(json).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << to;
  return std::string(status.message());
}

TEST(CocoAnnotationsTest, ReadsBoxesInAnyOrderOfTheLists) {
  const auto coco = Read(kJson);
  ASSERT_TRUE(coco.ok()) << coco.status();
  EXPECT_EQ(coco->categories.num_classes(), 90);
  EXPECT_EQ(coco->categories.Find("car"), 2);
  EXPECT_EQ(coco->categories.Find("toothbrush"), 89);
  ASSERT_EQ(coco->images.size(), 3u);
  EXPECT_EQ(coco->images[0].filename, "a.jpg");
  EXPECT_EQ(coco->images[0].source_id, "100");
  EXPECT_TRUE(coco->images[2].objects.empty());
  ASSERT_EQ(coco->images[0].objects.size(), 1u);
  const AnnotatedObject& brush = coco->images[0].objects[0];
  EXPECT_TRUE(brush.box.is_crowd);
  EXPECT_EQ(brush.box.area, 32) << "a missing area is width times height";
  EXPECT_EQ(brush.box.xmax, 1.0f);
  EXPECT_EQ(brush.index, 1);
  ASSERT_EQ(coco->images[1].objects.size(), 1u);
  const AnnotatedObject& car = coco->images[1].objects[0];
  EXPECT_EQ(car.text, "car");
  EXPECT_FALSE(car.box.is_crowd);
  EXPECT_EQ(car.box.area, 99.5f);
  EXPECT_EQ(car.box.xmin, 0.25f);
  EXPECT_EQ(car.box.xmax, 1.0f);
  EXPECT_EQ(car.box.ymin, 0.25f);
  EXPECT_EQ(car.box.ymax, 0.525f);
}

TEST(CocoAnnotationsTest, RenumbersIdsThatALabelMapCannotHold) {
  const auto coco = Read(absl::StrReplaceAll(
      kJson, {{"\"category_id\": 3,", "\"category_id\": 0,"},
              {"{\"id\": 3, \"name\": \"car\"}", "{\"id\": 0, \"name\": \"car\"}"}}));
  ASSERT_TRUE(coco.ok()) << coco.status();
  EXPECT_EQ(coco->categories.num_classes(), 2);
  EXPECT_EQ(coco->categories.Find("car"), 0);
  EXPECT_EQ(coco->images[1].objects[0].text, "car");
}

TEST(CocoAnnotationsTest, ErrorsNameTheItem) {
  EXPECT_THAT(ErrorWith("\"image_id\": 200", "\"image_id\": 201"),
              HasSubstr("a.json: annotations[0]: no image has the id 201"));
  EXPECT_THAT(ErrorWith("\"category_id\": 90", "\"category_id\": 4"),
              HasSubstr("annotations[1]: no category has the id 4"));
  EXPECT_THAT(ErrorWith("[0, 0, 8, 4]", "[0, 0, 8]"), HasSubstr("annotations[1]: expected"));
  EXPECT_THAT(ErrorWith("[0, 0, 8, 4]", "[0, 0, \"8\", 4]"), HasSubstr("annotations[1]: expected"));
  EXPECT_THAT(ErrorWith("\"width\": 40", "\"width\": 0"), HasSubstr("images[1]: expected"));
  EXPECT_THAT(ErrorWith("\"width\": 40", "\"width\": 40.5"), HasSubstr("images[1]: expected"));
  EXPECT_THAT(ErrorWith("\"file_name\": \"b.jpg\",", ""), HasSubstr("images[1]: expected"));
  EXPECT_THAT(ErrorWith("\"id\": 200", "\"id\": 100"),
              HasSubstr("images[1]: id 100 is used twice"));
  EXPECT_THAT(ErrorWith("\"id\": 90", "\"id\": 3"), HasSubstr("id 3 is used twice"));
  EXPECT_THAT(ErrorWith("\"car\"", "\"toothbrush\""), HasSubstr("already that of id"));
  EXPECT_THAT(ErrorWith("\"images\": [\n", "\"photos\": [\n"), HasSubstr("no images"));
  EXPECT_THAT(ErrorWith("\"categories\"", "\"kinds\""), HasSubstr("no categories"));
  MemoryFileSystem files;
  EXPECT_EQ(LoadCocoAnnotations(files, "/none/a.json").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Read("[]").status().message()), HasSubstr("no images"));
}

TEST(CocoAnnotationsTest, AReadErrorInTheMiddleOfAFileIsNoDamage) {
  MemoryFileSystem memory;
  // The text makes the file longer than one read.
  const std::string json =
      absl::StrCat("{\"info\": \"", std::string(200'000, 'x'), "\",\n", kJson + 1);
  ASSERT_TRUE(WriteFileAtomically(memory, "/a.json", json).ok());
  FailingReads files(&memory);
  const absl::StatusOr<CocoAnnotations> read = LoadCocoAnnotations(files, "/a.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->images.size(), Read(std::string(kJson))->images.size());

  files.Fail(FailingReads::What::kRead, "a.json", absl::OkStatus(), 2);
  int reads = 0;
  files.AtFailure([&] {
    if (++reads < 2) return;
    files.Fail(FailingReads::What::kRead, "a.json",
               MarkPassing(absl::InternalError("read /a.json: Input/output error")), 0);
  });
  const absl::Status status = LoadCocoAnnotations(files, "/a.json").status();
  EXPECT_EQ(reads, 2);
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/a.json: Input/output error"));
}

TEST(CocoAnnotationsTest, DetectsEveryTruncation) {
  const std::string json(kJson);
  for (size_t size = 0; size < json.size(); ++size) {
    const absl::Status status = Read(json.substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not JSON at byte")) << size;
  }
}

}  // namespace
}  // namespace pushpull
