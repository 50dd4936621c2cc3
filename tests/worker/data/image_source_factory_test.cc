#include "worker/data/image_source_factory.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/example_codec.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<ImageSource>> Open(const std::string& text,
                                                  const std::string& data_dir, int num_classes) {
  config::InputReader reader;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &reader)) << text;
  return OpenImageSource(reader, {data_dir, num_classes, "train_input_reader"});
}

TEST(ImageSourceFactoryTest, OpensEachReader) {
  const TestFolder folder;
  folder.Write("i", IdxImages(3, 2, 2));
  folder.Write("l", IdxLabels(3, 3));
  folder.Write("set/a/1.png", EncodePng(MakeImage(2, 2, 1)));
  auto idx = Open("idx_input_reader { images_path: 'i' labels_path: 'l' }", folder.path(), 3);
  ASSERT_TRUE(idx.ok()) << idx.status();
  EXPECT_EQ((*idx)->size(), 3);
  auto images = Open("image_folder_input_reader { path: 'set' }", folder.path() + "/", 1);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ((*images)->size(), 1);
  auto synthetic = Open("synthetic_input_reader { num_examples: 5 num_classes: 4 }", "", 4);
  ASSERT_TRUE(synthetic.ok()) << synthetic.status();
  EXPECT_EQ((*synthetic)->size(), 5);
}

TEST(ImageSourceFactoryTest, DigitsMustBeGrey) {
  const TestFolder folder;
  folder.Write("grey", IdxImages(2, 2, 2));
  folder.Write("color", Idx(0x804, {2, 2, 2, 3}, std::string(24, 'x')));
  folder.Write("l", IdxLabels(2, 2));
  const auto open = [&](const char* images) {
    return Open(absl::StrCat("synthetic_input_reader { max_objects: 2 digits { images_path: '",
                             images, "' labels_path: 'l' } }"),
                folder.path(), 2)
        .status();
  };
  EXPECT_EQ(open("grey"), absl::OkStatus());
  const absl::Status status = open("color");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("digits: expected grey images, got 3 channels"), HasSubstr(folder.path())));
}

TEST(ImageSourceFactoryTest, ReadsOneOfNExamples) {
  const TestFolder folder;
  folder.Write("i", IdxImages(5, 2, 2));
  folder.Write("l", IdxLabels(5, 5));
  for (const int n : {1, 2}) {
    const auto idx = Open(absl::StrCat("idx_input_reader { images_path: 'i' labels_path: 'l' } "
                                       "sample_1_of_n_examples: ",
                                       n),
                          folder.path(), 5);
    ASSERT_TRUE(idx.ok()) << idx.status();
    ASSERT_EQ((*idx)->size(), n == 1 ? 5 : 3);
    Example example;
    for (int64_t i = 0; i < (*idx)->size(); ++i) {
      ASSERT_EQ((*idx)->Get(i, &example), absl::OkStatus());
      EXPECT_EQ(example.label, n * i);
    }
  }
}

TEST(ImageSourceFactoryTest, ErrorsNameTheReader) {
  const absl::Status folder = Open("image_folder_input_reader { path: 'x' }", "/none", 10).status();
  EXPECT_THAT(std::string(folder.message()),
              HasSubstr("train_input_reader.image_folder_input_reader: /none/x: cannot be read"));
  EXPECT_EQ(
      Open("idx_input_reader { images_path: 'i' labels_path: 'l' }", "/none", 10).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(ImageSourceFactoryTest, OpensReadersWithBoxes) {
  const TestFolder folder;
  const std::string png = EncodePng(MakeImage(4, 4, 3));
  AnnotatedImage image{"a.png", "a", 4, 4, std::nullopt, "", {}};
  image.objects.push_back(
      {{.ymin = 0, .xmin = 0, .ymax = 1, .xmax = 1, .label = 1, .area = 16}, "cat", 0});
  std::string records;
  AppendRecord(*EncodeExample(image, png), &records);
  folder.Write("a.record-00000-of-00001", records);
  folder.Write("map.pbtxt", "item { id: 2 name: 'dog' } item { id: 1 name: 'cat' }");
  folder.Write("voc/Annotations/a.xml",
               "<annotation><size><width>4</width><height>4</height></size><object><name>dog"
               "</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
               "</object></annotation>");
  folder.Write("voc/JPEGImages/a.png", png);
  folder.Write("voc/ImageSets/Main/train.txt", "a");
  const auto open = [&](const std::string& text, Annotation annotation) {
    config::InputReader reader;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &reader)) << text;
    return OpenImageSource(reader, {folder.path(), 2, "train_input_reader", annotation});
  };
  const std::string record_reader = "tf_record_input_reader { input_path: 'a.record@1' }";
  const std::string voc_reader = "voc_input_reader { path: 'voc' split: 'train' }";
  const std::string map = "label_map_path: 'map.pbtxt' ";
  Example example;
  for (const auto& [text, label] :
       {std::make_pair(record_reader, 1), std::make_pair(map + record_reader, 0),
        std::make_pair(map + voc_reader, 1)}) {
    const auto source = open(text, Annotation::kBoxes);
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_TRUE((*source)->Get(0, &example).ok());
    ASSERT_EQ(example.boxes.size(), 1u);
    EXPECT_EQ(example.boxes[0].label, label) << text;
  }
  const auto message = [&](const std::string& text, Annotation annotation) {
    return std::string(open(text, annotation).status().message());
  };
  EXPECT_THAT(message("label_map_path: 'none' " + record_reader, Annotation::kBoxes),
              AllOf(HasSubstr("train_input_reader.label_map_path: "), HasSubstr("/none")));
  EXPECT_THAT(message("tf_record_input_reader { input_path: 'gs://b/a' }", Annotation::kBoxes),
              HasSubstr("tf_record_input_reader: gs://b/a: remote storage"));
  const auto classifier = open(record_reader, Annotation::kImageLabel);
  ASSERT_TRUE(classifier.ok()) << classifier.status();
  EXPECT_THAT(std::string((*classifier)->Get(0, &example).message()),
              HasSubstr("neither class text nor class label"));
}

TEST(ImageSourceFactoryTest, DataDirIsPrependedToRelativePathsOnly) {
  EXPECT_EQ(ResolveDataPath("", "a/b"), "a/b");
  EXPECT_EQ(ResolveDataPath("/d", "a/b"), "/d/a/b");
  EXPECT_EQ(ResolveDataPath("/d/", "a/b"), "/d/a/b");
  EXPECT_EQ(ResolveDataPath("/d", "/a/b"), "/a/b");
}

}  // namespace
}  // namespace pushpull
