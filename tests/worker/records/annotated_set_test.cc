#include "worker/records/annotated_set.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/image_codec.h"
#include "worker/data/record_source.h"
#include "worker/data/voc_source.h"
#include "worker/records/record_writer.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnnotatedSetTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<AnnotatedSet>> Open(SetFormat format, const std::string& split,
                                                     const std::string& label_map = "") {
    std::optional<LabelMap> map;
    if (!label_map.empty()) map = *LabelMap::Parse(label_map, "map");
    return OpenAnnotatedSet(&files_, format, folder_.path(), split, map);
  }
  std::string OpenError(SetFormat format, const std::string& split,
                        const std::string& label_map = "") {
    return std::string(Open(format, split, label_map).status().message());
  }

  PosixFileSystem files_;
  TestFolder folder_;
};

TEST_F(AnnotatedSetTest, ReadsFormatNames) {
  EXPECT_EQ(ParseSetFormat("voc"), SetFormat::kVoc);
  EXPECT_EQ(ParseSetFormat("coco"), SetFormat::kCoco);
  EXPECT_EQ(ParseSetFormat("image_folder"), SetFormat::kImageFolder);
  EXPECT_EQ(ParseSetFormat("idx"), SetFormat::kIdx);
  EXPECT_EQ(ParseSetFormat("VOC"), std::nullopt);
}

TEST_F(AnnotatedSetTest, ReadsVoc) {
  folder_.Write("Annotations/a.xml",
                "<annotation><size><width>8</width><height>4</height></size>"
                "<object><name>b</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>8</xmax>"
                "<ymax>4</ymax></bndbox></object>"
                "<object><name>a</name><bndbox><xmin>2</xmin><ymin>0</ymin><xmax>2</xmax>"
                "<ymax>4</ymax></bndbox></object></annotation>");
  const std::string jpeg = EncodeJpeg(MakeImage(4, 8, 3));
  folder_.Write("JPEGImages/a.jpg", jpeg);
  folder_.Write("ImageSets/Main/train.txt", "a\n");
  const auto set = Open(SetFormat::kVoc, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 1);
  EXPECT_EQ((*set)->label_map().Find("b"), 1);
  const auto loaded = (*set)->Load(0);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->encoded, jpeg);
  EXPECT_EQ(loaded->annotation.filename, "a.jpg");
  EXPECT_FALSE(loaded->annotation.label);
  ASSERT_EQ(loaded->annotation.objects.size(), 1u);
  EXPECT_EQ(loaded->annotation.objects[0].box.label, 1);
  EXPECT_THAT(
      loaded->issues.left_out,
      ElementsAre(AllOf(HasSubstr("/a.xml object 1 (\"a\", a.jpg): "), HasSubstr("no area"))));
  const auto other = Open(SetFormat::kVoc, "train", "item { id: 7 name: 'b' }");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Load(0)->annotation.objects[0].box.label, 6);
  EXPECT_THAT((*other)->Load(0)->issues.left_out,
              ElementsAre(HasSubstr("\"a\" is not in the label map")));
}

TEST_F(AnnotatedSetTest, ReadsCoco) {
  folder_.Write("annotations/instances_val.json",
                R"({"images": [{"id": 5, "file_name": "a.png", "width": 8, "height": 4},
                               {"id": 6, "file_name": "b.png", "width": 8, "height": 4}],
                    "annotations": [{"image_id": 5, "category_id": 2, "bbox": [0, 0, 4, 4]},
                                    {"image_id": 5, "category_id": 2, "bbox": [6, 0, 4, 4]},
                                    {"image_id": 5, "category_id": 2, "bbox": [4, 0, 4.5, 4]}],
                    "categories": [{"id": 2, "name": "cat"}]})");
  folder_.Write("val/a.png", EncodePng(MakeImage(4, 8, 3)));
  const auto set = Open(SetFormat::kCoco, "val");
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 2);
  const auto loaded = (*set)->Load(0);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->annotation.source_id, "5");
  ASSERT_EQ(loaded->annotation.objects.size(), 2u);
  EXPECT_EQ(loaded->annotation.objects[0].box.label, 1);
  EXPECT_EQ(loaded->annotation.objects[0].text, "cat");
  EXPECT_EQ(loaded->annotation.objects[1].box.xmax, 1.0f);
  EXPECT_THAT(
      loaded->issues.clipped,
      ElementsAre(AllOf(HasSubstr("instances_val.json annotations object 2 (\"cat\", a.png"),
                        HasSubstr("is clipped to it"))));
  EXPECT_THAT(
      loaded->issues.left_out,
      ElementsAre(AllOf(HasSubstr("instances_val.json annotations object 1 (\"cat\", a.png"),
                        HasSubstr("outside the image"))));
  EXPECT_EQ((*set)->Load(1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(SetFormat::kCoco, "train"), HasSubstr("instances_train.json"));
}

TEST_F(AnnotatedSetTest, ImageFoldersKeepEmptyClasses) {
  folder_.Write("train/cat/a.png", EncodePng(MakeImage(2, 3, 1)));
  folder_.Write("train/dog/b.pgm", EncodePgm(MakeImage(5, 6, 1)));
  folder_.MakeFolder("train/cow");
  const auto set = Open(SetFormat::kImageFolder, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 2);
  const auto loaded = (*set)->Load(1);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->annotation.label, 2);
  EXPECT_EQ(loaded->annotation.label_text, "dog");
  EXPECT_EQ(loaded->annotation.source_id, "dog/b.pgm");
  EXPECT_EQ(loaded->annotation.height, 5);
  Image image;
  ASSERT_TRUE(DecodePng(loaded->encoded, "b", &image).ok());
  EXPECT_EQ(image.pixels, MakeImage(5, 6, 1).pixels);
  EXPECT_THAT(OpenError(SetFormat::kImageFolder, "train", "item { id: 1 name: 'cat' }"),
              HasSubstr("the class folder \"dog\" is not in the label map"));
  EXPECT_THAT(OpenError(SetFormat::kImageFolder, "train/cow"), HasSubstr("no image"));
}

TEST_F(AnnotatedSetTest, ReadsIdx) {
  folder_.Write("train-images-idx3-ubyte", IdxImages(4, 5, 6));
  folder_.Write("train-labels-idx1-ubyte", IdxLabels(4, 3));
  folder_.Write("t10k-images-idx3-ubyte.gz", Gzip(IdxImages(2, 5, 6)));
  folder_.Write("t10k-labels-idx1-ubyte.gz", Gzip(IdxLabels(2, 3)));
  const auto set = Open(SetFormat::kIdx, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 4);
  EXPECT_EQ((*set)->label_map().num_classes(), 3);
  const auto loaded = (*set)->Load(2);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->annotation.label, 2);
  EXPECT_EQ(loaded->annotation.label_text, "2");
  EXPECT_EQ(loaded->annotation.filename, "train-000002.png");
  Image image;
  ASSERT_TRUE(DecodePng(loaded->encoded, "2", &image).ok());
  EXPECT_EQ(image.height, 5);
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.pixels[3], (2 * 30 + 3) % 251);
  const auto test = Open(SetFormat::kIdx, "test");
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 2);
  EXPECT_EQ(Open(SetFormat::kIdx, "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Open(SetFormat::kIdx, "train", "item { id: 1 name: 'zero' }").ok());
}

// Photographs of blood cells: the records must hold the same as the folder.
TEST(RecordsRealDataTest, BloodCellsRoundTripThroughRecords) {
  const char* const from_env = std::getenv("PUSHPULL_DATA_DIR");
  const std::string path =
      absl::StrCat(from_env != nullptr ? from_env : PUSHPULL_SOURCE_DIR "/../shared/data", "/bccd");
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no BCCD files in " << path << " (PUSHPULL_DATA_DIR names the folder above)";
  }
  const TestFolder folder;
  PosixFileSystem files;
  const auto set = OpenAnnotatedSet(&files, SetFormat::kVoc, path, "val", std::nullopt);
  ASSERT_TRUE(set.ok()) << set.status();
  RecordWriterOptions options;
  options.output = folder.path() + "/val";
  options.bad_data = BadData::kSkip;
  ThreadPool pool(2);
  const auto summary = WriteRecords(&files, **set, options, &pool);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->problems, ElementsAre(HasSubstr("BloodImage_00338.xml object 12")));
  RecordSourceOptions record_options;
  record_options.input_paths = summary->files;
  record_options.label_map = (*set)->label_map();
  record_options.num_classes = 3;
  const auto records = RecordSource::Open(files, std::move(record_options));
  ASSERT_TRUE(records.ok()) << records.status();
  const auto voc =
      VocSource::Open(std::make_unique<PosixFileSystem>(), path, "val", (*set)->label_map(), 3);
  ASSERT_TRUE(voc.ok()) << voc.status();
  ASSERT_EQ((*records)->size(), (*voc)->size());
  Example got, expected;
  for (int64_t i = 0; i < (*voc)->size(); ++i) {
    ASSERT_TRUE((*records)->Get(i, &got).ok());
    ASSERT_TRUE((*voc)->Get(i, &expected).ok());
    ASSERT_TRUE(got.image.pixels == expected.image.pixels) << i;
    ASSERT_EQ(got.boxes.size(), expected.boxes.size()) << i;
    for (size_t b = 0; b < got.boxes.size(); ++b) {
      EXPECT_EQ(got.boxes[b].label, expected.boxes[b].label);
      EXPECT_EQ(got.boxes[b].ymin, expected.boxes[b].ymin);
      EXPECT_EQ(got.boxes[b].xmax, expected.boxes[b].xmax);
    }
  }
}

}  // namespace
}  // namespace pushpull
