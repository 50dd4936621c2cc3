#include "worker/data/example_codec.h"

#include <zlib.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "protos/example.pb.h"
#include "tests/testkit/data/data_test_util.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AnnotatedObject MakeObject(const Box& box, const std::string& text) {
  AnnotatedObject object;
  object.box = box;
  object.text = text;
  object.box.area = 12;
  return object;
}

AnnotatedImage TwoObjects() {
  AnnotatedImage image{"a.jpg", "id-a", 12, 16, std::nullopt, "", {}};
  Box box{0.25f, 0.125f, 0.5f, 1.0f, 0};
  image.objects.push_back(MakeObject(box, "cat"));
  box = {0, 0, 1, 0.5f, 2};
  box.difficult = true;
  box.is_crowd = true;
  image.objects.push_back(MakeObject(box, "dog"));
  return image;
}

// Holds a record that a test may change before it is decoded.
class ExampleCodecTest : public testing::Test {
 protected:
  ExampleCodecTest() {
    jpeg_ = EncodeJpeg(MakeImage(12, 16, 3));
    Set(TwoObjects());
  }
  void Set(const AnnotatedImage& image) {
    const absl::StatusOr<std::string> bytes = EncodeExample(image, jpeg_);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_TRUE(proto_.ParseFromString(*bytes));
  }
  tensorflow::Feature& operator[](const std::string& key) {
    return (*proto_.mutable_features()->mutable_feature())[key];
  }
  absl::Status Decode() {
    issues_ = {};
    return DecodeExample(proto_.SerializeAsString(), "f.record record 7", decoding_, &example_,
                         &issues_);
  }
  std::string DecodeError() {
    const absl::Status status = Decode();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  std::string jpeg_;
  tensorflow::Example proto_;
  ExampleDecoding decoding_{nullptr, 3, Annotation::kBoxes};
  Example example_;
  BoxIssues issues_;
};

TEST_F(ExampleCodecTest, RoundTrips) {
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_THAT(issues_.left_out, IsEmpty());
  EXPECT_EQ(example_.image.height, 12);
  EXPECT_EQ(example_.image.width, 16);
  ASSERT_EQ(example_.boxes.size(), 2u);
  const Box& first = example_.boxes[0];
  EXPECT_EQ(first.ymin, 0.25f);
  EXPECT_EQ(first.xmin, 0.125f);
  EXPECT_EQ(first.ymax, 0.5f);
  EXPECT_EQ(first.xmax, 1.0f);
  EXPECT_EQ(first.label, 0);
  EXPECT_EQ(first.weight, 1.0f);
  EXPECT_FALSE(first.difficult || first.is_crowd);
  EXPECT_EQ(first.area, 12);
  EXPECT_EQ(example_.boxes[1].label, 2);
  EXPECT_TRUE(example_.boxes[1].difficult && example_.boxes[1].is_crowd);
}

TEST_F(ExampleCodecTest, ReadsWhichBoxesStandForGroups) {
  ASSERT_TRUE(Decode().ok());  // without the key no box does
  EXPECT_FALSE(example_.boxes[0].is_group_of || example_.boxes[1].is_group_of);
  auto* const groups = (*this)["image/object/group_of"].mutable_int64_list();
  groups->add_value(0);
  groups->add_value(1);
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_FALSE(example_.boxes[0].is_group_of);
  EXPECT_TRUE(example_.boxes[1].is_group_of);
}

TEST_F(ExampleCodecTest, ReadsAreasThatAreNumbersAboveZero) {
  auto* const areas = (*this)["image/object/area"].mutable_float_list();
  areas->set_value(0, 500);
  for (const float area : {0.0f, -1.0f, INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    areas->set_value(1, area);
    ASSERT_TRUE(Decode().ok()) << Decode();
    EXPECT_THAT(issues_.left_out, IsEmpty());
    ASSERT_EQ(example_.boxes.size(), 2u);
    EXPECT_EQ(example_.boxes[0].area, 500);
    EXPECT_EQ(example_.boxes[1].area, 0) << area;
  }
  areas->clear_value();
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_EQ(example_.boxes.at(0).area, 0);
}

TEST_F(ExampleCodecTest, WritesTheKeysOfTheFormat) {
  EXPECT_EQ((*this)["image/encoded"].bytes_list().value(0), jpeg_);
  EXPECT_EQ((*this)["image/format"].bytes_list().value(0), "jpeg");
  EXPECT_EQ((*this)["image/filename"].bytes_list().value(0), "a.jpg");
  EXPECT_EQ((*this)["image/source_id"].bytes_list().value(0), "id-a");
  EXPECT_EQ((*this)["image/key/sha256"].bytes_list().value(0).size(), 64u);
  EXPECT_EQ((*this)["image/height"].int64_list().value(0), 12);
  EXPECT_EQ((*this)["image/width"].int64_list().value(0), 16);
  EXPECT_THAT((*this)["image/object/class/label"].int64_list().value(), ElementsAre(1, 3));
  EXPECT_THAT((*this)["image/object/class/text"].bytes_list().value(), ElementsAre("cat", "dog"));
  EXPECT_THAT((*this)["image/object/area"].float_list().value(), ElementsAre(12, 12));
  EXPECT_THAT((*this)["image/object/bbox/xmax"].float_list().value(), ElementsAre(1.0f, 0.5f));
  EXPECT_EQ(proto_.features().feature().size(), 16u);
  EXPECT_EQ(*EncodeExample(TwoObjects(), jpeg_), *EncodeExample(TwoObjects(), jpeg_));
}

// The same float list once packed and once not, encoded by hand as other programs write it.
TEST_F(ExampleCodecTest, ReadsPackedAndUnpackedListsAlike) {
  const auto field = [](int number, const std::string& bytes) {
    return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                        std::string(1, static_cast<char>(bytes.size())), bytes);
  };
  const std::string half("\x00\x00\x00\x3f", 4);
  const std::string quarter("\x00\x00\x80\x3e", 4);
  const std::string packed = field(1, quarter + half);
  const std::string unpacked = "\x0d" + quarter + "\x0d" + half;
  for (const std::string& list : {packed, unpacked}) {
    tensorflow::Feature feature;
    ASSERT_TRUE(feature.ParseFromString(field(2, list)));
    EXPECT_THAT(feature.float_list().value(), ElementsAre(0.25f, 0.5f));
  }
  for (const std::string& list : {field(1, "\x01\x02"), std::string("\x08\x01\x08\x02")}) {
    tensorflow::Feature feature;
    ASSERT_TRUE(feature.ParseFromString(field(3, list)));
    EXPECT_THAT(feature.int64_list().value(), ElementsAre(1, 2));
  }
}

TEST_F(ExampleCodecTest, WithALabelMapTextOverridesTheNumber) {
  const auto map = LabelMap::Parse(
      "item { id: 1 name: 'dog' } item { id: 2 name: '/m/x' display_name: 'cat' }", "map");
  ASSERT_TRUE(map.ok());
  decoding_.label_map = &*map;
  ASSERT_TRUE(Decode().ok());
  EXPECT_EQ(example_.boxes[0].label, 1);
  EXPECT_EQ(example_.boxes[1].label, 0);
  (*this)["image/object/class/text"].mutable_bytes_list()->set_value(0, "cow");
  ASSERT_TRUE(Decode().ok());
  EXPECT_THAT(issues_.left_out,
              ElementsAre("f.record record 7 (a.jpg) object 0: the class \"cow\" is not "
                          "in the label map map"));
  ASSERT_EQ(example_.boxes.size(), 1u);
  EXPECT_EQ(example_.boxes[0].label, 0);
  // Without text, the number decides.
  (*this)["image/object/class/text"].mutable_bytes_list()->clear_value();
  ASSERT_TRUE(Decode().ok());
  ASSERT_EQ(example_.boxes.size(), 2u);
  EXPECT_EQ(example_.boxes[1].label, 2);
}

TEST_F(ExampleCodecTest, ReadsAnExampleWithoutBoxes) {
  AnnotatedImage image = TwoObjects();
  image.objects.clear();
  Set(image);
  ASSERT_TRUE(Decode().ok());
  EXPECT_THAT(example_.boxes, IsEmpty());
  // Some writers omit the keys.
  for (const char* key : {"bbox/xmin", "bbox/xmax", "bbox/ymin", "bbox/ymax", "class/label"}) {
    proto_.mutable_features()->mutable_feature()->erase(absl::StrCat("image/object/", key));
  }
  ASSERT_TRUE(Decode().ok());
  EXPECT_THAT(example_.boxes, IsEmpty());
  EXPECT_THAT(issues_.left_out, IsEmpty());
}

TEST_F(ExampleCodecTest, NamesUnusableBoxes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    const char* edge;
    float value;
    const char* expected;
  } cases[] = {{"xmin", 1.0f, "no area: ymin"},  {"ymax", 0.25f, "no area: ymin"},
               {"ymin", 0.75f, "swapped edges"}, {"xmax", 1.11f, "outside the image"},
               {"ymin", -0.11f, "outside"},      {"ymax", nan, "no number"},
               {"xmax", INFINITY, "no number"},  {"xmin", 1.00005f, "swapped edges"}};
  for (const auto& c : cases) {
    Set(TwoObjects());
    (*this)[absl::StrCat("image/object/bbox/", c.edge)].mutable_float_list()->set_value(0, c.value);
    ASSERT_TRUE(Decode().ok());
    ASSERT_EQ(issues_.left_out.size(), 1u) << c.edge << " " << c.value;
    EXPECT_THAT(issues_.left_out[0],
                AllOf(HasSubstr("record 7 (a.jpg) object 0: "), HasSubstr(c.expected)));
    ASSERT_EQ(example_.boxes.size(), 1u);
    EXPECT_EQ(example_.boxes[0].label, 2);
  }
  Set(TwoObjects());
  (*this)["image/object/bbox/xmax"].mutable_float_list()->set_value(0, 1.00001f);
  ASSERT_TRUE(Decode().ok());
  ASSERT_EQ(example_.boxes.size(), 2u) << "a rounding error of the edge is accepted";
  EXPECT_EQ(example_.boxes[0].xmax, 1.0f);
  EXPECT_THAT(issues_.clipped, IsEmpty());
  (*this)["image/object/bbox/xmin"].mutable_float_list()->set_value(0, 1.0f);
  ASSERT_TRUE(Decode().ok());
  EXPECT_THAT(issues_.left_out,
              ElementsAre(HasSubstr("object 0: the box has no area within the image")));
}

// Many writers give one pixel too much: 1.002 is one of 500. TensorFlow keeps such boxes.
TEST_F(ExampleCodecTest, ClipsBoxesThatReachOutsideTheImageAndSaysSo) {
  const struct {
    const char* edge;
    float value;
    float Box::*clipped;
    float expected;
  } cases[] = {{"xmax", 1.002f, &Box::xmax, 1.0f},
               {"ymax", 1.1f, &Box::ymax, 1.0f},
               {"xmin", -0.002f, &Box::xmin, 0.0f},
               {"ymin", -0.1f, &Box::ymin, 0.0f}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.edge);
    Set(TwoObjects());
    (*this)[absl::StrCat("image/object/bbox/", c.edge)].mutable_float_list()->set_value(0, c.value);
    ASSERT_TRUE(Decode().ok());
    EXPECT_THAT(issues_.left_out, IsEmpty());
    EXPECT_THAT(
        issues_.clipped,
        ElementsAre(AllOf(HasSubstr("record 7 (a.jpg) object 0: the box reaches outside the "
                                    "image and is clipped to it"),
                          HasSubstr(absl::StrCat(c.edge, " ", c.value)))));
    ASSERT_EQ(example_.boxes.size(), 2u);
    EXPECT_EQ(example_.boxes[0].*c.clipped, c.expected);
    EXPECT_EQ(example_.boxes[0].label, 0);
  }
  Set(TwoObjects());
  ASSERT_TRUE(Decode().ok());
  EXPECT_THAT(issues_.clipped, IsEmpty()) << "the boxes touch the image's border";
}

TEST_F(ExampleCodecTest, NamesInvalidLabelsAndWeights) {
  for (const int64_t id : {int64_t{0}, int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    Set(TwoObjects());
    (*this)["image/object/class/label"].mutable_int64_list()->set_value(1, id);
    ASSERT_TRUE(Decode().ok());
    ASSERT_EQ(issues_.left_out.size(), 1u);
    EXPECT_THAT(issues_.left_out[0],
                HasSubstr(id == 0 ? "object 1: class id 0 is reserved for the background"
                                  : absl::StrCat("object 1: class id ", id, " (\"dog\") is not")));
  }
  Set(TwoObjects());
  (*this)["image/object/weight"].mutable_float_list()->add_value(0.5f);
  (*this)["image/object/weight"].mutable_float_list()->add_value(-1);
  ASSERT_TRUE(Decode().ok());
  EXPECT_EQ(example_.boxes[0].weight, 0.5f);
  ASSERT_EQ(issues_.left_out.size(), 1u);
  EXPECT_THAT(issues_.left_out[0], HasSubstr("weight is -1"));
  Set(TwoObjects());
  (*this)["image/object/class/label"].mutable_int64_list()->clear_value();
  ASSERT_TRUE(Decode().ok());
  ASSERT_EQ(issues_.left_out.size(), 2u);
  EXPECT_THAT(issues_.left_out[0], HasSubstr("give a label map"));
}

TEST_F(ExampleCodecTest, NamesTheErrorOfMalformedExamples) {
  EXPECT_EQ(DecodeExample("no proto", "r", decoding_, &example_, &issues_).code(),
            absl::StatusCode::kDataLoss);
  for (const char* key : {"bbox/xmin", "bbox/xmax", "bbox/ymin", "bbox/ymax", "class/label",
                          "class/text", "difficult", "is_crowd", "group_of", "area", "weight"}) {
    Set(TwoObjects());
    (*this)["image/object/weight"].mutable_float_list();
    (*this)["image/object/group_of"].mutable_int64_list();
    tensorflow::Feature& feature = (*this)[absl::StrCat("image/object/", key)];
    if (feature.has_float_list()) feature.mutable_float_list()->add_value(1);
    if (feature.has_int64_list()) feature.mutable_int64_list()->add_value(1);
    if (feature.has_bytes_list()) feature.mutable_bytes_list()->add_value("x");
    EXPECT_THAT(DecodeError(), AllOf(HasSubstr("(a.jpg)"), HasSubstr("they must be the same")))
        << key;
  }
  Set(TwoObjects());
  (*this)["image/object/class/label"].mutable_float_list();
  EXPECT_THAT(DecodeError(), HasSubstr("image/object/class/label is a float_list, expected a "
                                       "int64_list"));
  Set(TwoObjects());
  proto_.mutable_features()->mutable_feature()->erase("image/encoded");
  EXPECT_THAT(DecodeError(), HasSubstr("image/encoded has 0 elements"));
  EXPECT_EQ(EncodeExample(TwoObjects(), "BM").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExampleCodecTest, NamesTheRecordOfAnUndecodableImage) {
  std::string& bytes = *(*this)["image/encoded"].mutable_bytes_list()->mutable_value(0);
  bytes.resize(bytes.size() / 2);
  const absl::Status damaged = Decode();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("f.record record 7 (a.jpg): "));
  // A header that claims 20,000 pixels per side is refused before memory is allocated.
  std::string png = EncodePng(MakeImage(1, 1, 3));
  for (const int offset : {18, 22}) {
    png[offset] = 0x4e;
    png[offset + 1] = 0x20;
  }
  const uint32_t crc = crc32(0, reinterpret_cast<const Bytef*>(&png[12]), 17);
  for (int i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  bytes = png;
  EXPECT_THAT(DecodeError(), HasSubstr("20000 x 20000"));
  std::string jpeg = EncodeJpeg(MakeImage(8, 8, 3));
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x4e\x20\x4e\x20");
  bytes = jpeg;
  EXPECT_THAT(DecodeError(), HasSubstr("20000 x 20000"));
  bytes = EncodePng(MakeImage(1, 1, 3));
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_EQ(example_.image.height, 1);
  EXPECT_EQ(example_.boxes.size(), 2u);
}

TEST_F(ExampleCodecTest, ReadsImageLabels) {
  decoding_.annotation = Annotation::kImageLabel;
  EXPECT_THAT(DecodeError(), AllOf(HasSubstr("neither class text nor class label"),
                                   HasSubstr("image/class/label")));
  Set({"a.jpg", "a", 12, 16, 2, "two", {}});
  proto_.mutable_features()->mutable_feature()->erase("image/object/bbox/xmin");
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_EQ(example_.label, 2);
  EXPECT_EQ(proto_.features().feature().count("image/object/class/label"), 0u);
  (*this)["image/class/label"].mutable_int64_list()->set_value(0, 4);
  EXPECT_THAT(DecodeError(), HasSubstr("class id 4 (\"two\") is not within 1 to 3"));
  decoding_.annotation = Annotation::kEither;
  EXPECT_THAT(DecodeError(), HasSubstr("class id 4"));
  decoding_.annotation = Annotation::kBoxes;
  EXPECT_TRUE(Decode().ok());
}

}  // namespace
}  // namespace pushpull
