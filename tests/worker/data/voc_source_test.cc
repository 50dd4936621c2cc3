#include "worker/data/voc_source.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/voc_annotations.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kXml[] =
    "<annotation>\n<folder>x</folder><filename>other.jpg</filename>\n"
    "<size><width>40</width><height>20</height><depth>3</depth></size>\n"
    "<object><name>cat</name><difficult>1</difficult>"
    "<bndbox><xmin>10</xmin><ymin>5</ymin><xmax>40</xmax><ymax>10.5</ymax></bndbox></object>\n"
    "<object><name> dog </name>"
    "<bndbox><xmax>8</xmax><xmin>4</xmin><ymin>0</ymin><ymax>20</ymax></bndbox>"
    "<part><name>head</name></part></object>\n</annotation>\n";

std::string With(const std::string& from, const std::string& to) {
  return absl::StrReplaceAll(kXml, {{from, to}});
}

std::string ParseError(const std::string& xml) {
  const auto image = ParseVocAnnotation(xml, "a.xml");
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(image.status().message());
}

TEST(VocAnnotationsTest, EdgesAreFractionsOfTheSizeWithoutAnOffset) {
  const auto image = ParseVocAnnotation(kXml, "a.xml");
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->width, 40);
  EXPECT_EQ(image->height, 20);
  ASSERT_EQ(image->objects.size(), 2u);
  const AnnotatedObject& cat = image->objects[0];
  EXPECT_EQ(cat.text, "cat");
  EXPECT_EQ(cat.box.xmin, 0.25f);
  EXPECT_EQ(cat.box.xmax, 1.0f);
  EXPECT_EQ(cat.box.ymin, 0.25f);
  EXPECT_EQ(cat.box.ymax, 0.525f);
  EXPECT_EQ(cat.box.area, 30 * 5.5f);
  EXPECT_TRUE(cat.box.difficult);
  EXPECT_EQ(image->objects[1].text, "dog");
  EXPECT_FALSE(image->objects[1].box.difficult);
}

TEST(VocAnnotationsTest, ErrorsNameLineOrObject) {
  EXPECT_THAT(ParseError("<annotation>\n<size>\n<width></annotation>"),
              HasSubstr("a.xml:3: not well-formed XML"));
  EXPECT_THAT(ParseError(""), HasSubstr("a.xml:1: not well-formed XML"));
  EXPECT_THAT(ParseError("<html/>"), HasSubstr("the root is <html>"));
  EXPECT_THAT(ParseError(With("<width>40</width>", "")), HasSubstr("size is width \"\""));
  EXPECT_THAT(ParseError(With("<height>20", "<height>0")), HasSubstr("height \"0\""));
  EXPECT_THAT(ParseError(With("<name> dog </name>", "")),
              HasSubstr("a.xml: object 1: has no name"));
  EXPECT_THAT(ParseError(With("bndbox", "box")), HasSubstr("object 0: has no bndbox"));
  EXPECT_THAT(ParseError(With("<xmax>8</xmax>", "<xmax>8px</xmax>")),
              HasSubstr("object 1: bndbox.xmax is \"8px\""));
  EXPECT_THAT(ParseError(With("<difficult>1", "<difficult>yes")),
              HasSubstr("difficult is \"yes\""));
  // The text is longer in UTF-8 than in the file, and the parser counts bytes of UTF-8.
  std::string utf16("\xff\xfe<\0a\0>\0", 8);
  for (int i = 0; i < 1000; ++i) utf16 += "\x05\x4e";
  EXPECT_THAT(ParseError(utf16), HasSubstr("a.xml: not well-formed XML"));
  // Truncates everywhere except within the last line's end.
  const std::string xml(kXml);
  for (size_t size = 0; size + 1 < xml.size(); ++size) {
    EXPECT_FALSE(ParseVocAnnotation(xml.substr(0, size), "a.xml").ok()) << size;
  }
}

class VocSourceTest : public testing::Test {
 protected:
  VocSourceTest() {
    for (const char* id : {"a", "b"}) {
      folder_.Write(absl::StrCat("Annotations/", id, ".xml"), kXml);
    }
    folder_.Write("JPEGImages/a.jpg", EncodeJpeg(MakeImage(20, 40, 3)));
    folder_.Write("JPEGImages/b.png", EncodePng(MakeImage(20, 40, 3)));
    folder_.Write("ImageSets/Main/train.txt",
                  "\xef\xbb\xbf"
                  "b  1\r\na -1\n\n");
    folder_.Write("ImageSets/Main/val.txt", "a\n");
  }
  absl::StatusOr<std::unique_ptr<VocSource>> Open(const std::string& split, int num_classes = 2) {
    const auto map = LabelMap::FromNames(names_, "names");
    return VocSource::Open(std::make_unique<PosixFileSystem>(), folder_.path(), split, *map,
                           num_classes);
  }
  std::string OpenError(const std::string& split, int num_classes = 2) {
    return std::string(Open(split, num_classes).status().message());
  }

  TestFolder folder_;
  std::vector<std::string> names_ = {"dog", "cat"};
};

TEST_F(VocSourceTest, ReadsTheSplitInOrder) {
  const auto source = Open("train");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 2);
  EXPECT_THAT((*source)->describe(), HasSubstr("2 images, 2 classes, 0 boxes left out"));
  for (int i = 0; i < 2; ++i) {
    Example example;
    ASSERT_TRUE((*source)->Get(i, &example).ok());
    EXPECT_EQ(example.image.width, 40);
    ASSERT_EQ(example.boxes.size(), 2u);
    EXPECT_EQ(example.boxes[0].label, 1);
    EXPECT_TRUE(example.boxes[0].difficult);
    EXPECT_EQ(example.boxes[1].label, 0);
  }
  ThreadPool pool(2);
  EXPECT_TRUE((*source)->Check(&pool, NeverStopped).ok());
}

TEST_F(VocSourceTest, OpeningEndsWhenItIsStopped) {
  int asked = 0;
  const auto map = LabelMap::FromNames(names_, "names");
  const absl::Status status = VocSource::Open(std::make_unique<PosixFileSystem>(), folder_.path(),
                                              "train", *map, 2, [&asked] { return ++asked > 1; })
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(asked, 2);
}

TEST_F(VocSourceTest, LeavesUnusableBoxesOutAndNamesThem) {
  folder_.Write("Annotations/a.xml", With("<xmax>8</xmax>", "<xmax>4</xmax>"));
  folder_.Write("Annotations/b.xml", With("<xmax>40</xmax>", "<xmax>50</xmax>"));
  const auto source = Open("train");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->issues().left_out,
              ElementsAre(AllOf(HasSubstr("/b.xml object 0: "), HasSubstr("outside the image")),
                          AllOf(HasSubstr("/a.xml object 1: "), HasSubstr("no area"))));
  EXPECT_TRUE((*source)->issues().clipped.empty());
  names_ = {"cat"};
  EXPECT_THAT((*Open("val"))->issues().left_out,
              ElementsAre(HasSubstr("the class \"dog\" is not in the label map names")));
  EXPECT_EQ((*Open("val"))->first_box_left_out(), (*Open("val"))->issues().left_out.front());
}

TEST_F(VocSourceTest, ClipsBoxesToTheImageAndNamesThem) {
  folder_.Write("Annotations/a.xml", With("<xmax>40</xmax>", "<xmax>41</xmax>"));
  const auto source = Open("val");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->issues().left_out.empty());
  EXPECT_THAT((*source)->issues().clipped,
              ElementsAre(AllOf(HasSubstr("/a.xml object 0: "), HasSubstr("is clipped to it"),
                                HasSubstr("xmax 1.025"))));
  Example example;
  ASSERT_TRUE((*source)->Get(0, &example).ok());
  ASSERT_EQ(example.boxes.size(), 2u);
  EXPECT_EQ(example.boxes[0].xmax, 1.0f);
  EXPECT_THAT((*source)->describe(), HasSubstr("0 boxes left out"));
}

TEST_F(VocSourceTest, RefusesBadFolders) {
  EXPECT_EQ(Open("test").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError("test"), HasSubstr("test.txt: no such split; there are: train, val"));
  EXPECT_THAT(OpenError("val", 1), HasSubstr("ids go up to 2, the model has num_classes: 1"));
  folder_.Write("ImageSets/Main/empty.txt", "\n");
  EXPECT_THAT(OpenError("empty"), HasSubstr("names no image"));
  folder_.Write("ImageSets/Main/twice.txt", "a\nb\na\n");
  EXPECT_THAT(OpenError("twice"), HasSubstr("twice.txt:3: a is listed twice"));
  folder_.Write("ImageSets/Main/gone.txt", "a\nc\nd\n");
  EXPECT_THAT(OpenError("gone"), HasSubstr("2 of 3 images have no .jpg, .jpeg or .png file, the "
                                           "first of them c"));
  std::filesystem::remove(folder_.path() + "/Annotations/b.xml");
  EXPECT_EQ(Open("train").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError("train"), HasSubstr("Annotations/b.xml"));
}

TEST_F(VocSourceTest, NamesCorruptImagesAndWrongSizes) {
  folder_.Write("JPEGImages/a.jpg", EncodeJpeg(MakeImage(20, 41, 3)));
  folder_.Write("JPEGImages/b.png", "no image");
  const auto source = Open("train");
  ASSERT_TRUE(source.ok()) << source.status();
  ThreadPool pool(2);
  EXPECT_THAT(std::string((*source)->Check(&pool, NeverStopped).message()),
              AllOf(HasSubstr("2 of 2 images"), HasSubstr("/b.png: "),
                    HasSubstr("/a.jpg: the image is 20 x 41 (height x width), its annotation says "
                              "20 x 40")));
}

TEST_F(VocSourceTest, TheDerivedLabelMapIsSortedAndCoversAllSplits) {
  PosixFileSystem files;
  folder_.Write("Annotations/c.xml", With("> dog <", ">ant<"));
  const auto map = DeriveVocLabelMap(files, folder_.path());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->num_classes(), 3);
  EXPECT_EQ(map->Find("ant"), 0);
  EXPECT_EQ(map->Find("cat"), 1);
  EXPECT_EQ(map->Find("dog"), 2);
}

// The BCCD data set: 364 photographs of blood cells, in which two boxes have no area.
TEST(VocRealDataTest, ReadsBloodCells) {
  const char* const from_env = std::getenv("PUSHPULL_DATA_DIR");
  const std::string path =
      absl::StrCat(from_env != nullptr ? from_env : PUSHPULL_SOURCE_DIR "/../shared/data", "/bccd");
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no BCCD files in " << path << " (PUSHPULL_DATA_DIR names the folder above)";
  }
  PosixFileSystem files;
  const auto map = DeriveVocLabelMap(files, path);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->name(0), "Platelets");
  EXPECT_EQ(map->num_classes(), 3);
  int64_t images = 0;
  size_t issues = 0;
  for (const char* split : {"train", "val", "test"}) {
    const auto source = VocSource::Open(std::make_unique<PosixFileSystem>(), path, split, *map, 3);
    ASSERT_TRUE(source.ok()) << source.status();
    images += (*source)->size();
    EXPECT_TRUE((*source)->issues().clipped.empty());
    for (const std::string& issue : (*source)->issues().left_out) {
      ++issues;
      EXPECT_THAT(issue, AllOf(HasSubstr("/Annotations/BloodImage_"), HasSubstr("no area")));
    }
    Example example;
    ASSERT_TRUE((*source)->Get(0, &example).ok());
    EXPECT_EQ(example.image.width, 640);
    EXPECT_FALSE(example.boxes.empty());
  }
  EXPECT_EQ(images, 364);
  EXPECT_EQ(issues, 2u);
}

}  // namespace
}  // namespace pushpull
