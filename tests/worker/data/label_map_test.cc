#include "worker/data/label_map.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Error(absl::string_view text) {
  const absl::StatusOr<LabelMap> map = LabelMap::Parse(text, "m.pbtxt");
  EXPECT_FALSE(map.ok()) << text;
  EXPECT_EQ(map.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(map.status().message());
}

TEST(LabelMapTest, ReadsBothSyntaxesWithGapsAndDisplayNames) {
  const auto map = LabelMap::Parse(
      "# classes\nitem {\n  name: '/m/01'\n  id: 1\n  display_name: \"person\"\n}\n"
      "item: { id: 4 name: 'fire \"hydrant\"' }\n",
      "m.pbtxt");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->num_classes(), 4);
  EXPECT_EQ(map->Find("/m/01"), 0);
  EXPECT_EQ(map->Find("person"), 0);
  EXPECT_EQ(map->Find("fire \"hydrant\""), 3);
  EXPECT_EQ(map->Find("Person"), std::nullopt);
  EXPECT_EQ(map->Find(""), std::nullopt);
  EXPECT_EQ(map->name(0), "person");
  EXPECT_EQ(map->name(1), "");
  EXPECT_EQ(map->name(3), "fire \"hydrant\"");
  const auto again = LabelMap::Parse(map->ToText(), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToText(), map->ToText());
  EXPECT_EQ(again->Find("/m/01"), 0);
}

TEST(LabelMapTest, ReadsTheFilesOfOtherSystems) {
  const auto map =
      LabelMap::Parse("\xef\xbb\xbfitem {\r\n  id: 1\r\n  name: 'cat'\r\n}\r\n", "m.pbtxt");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->Find("cat"), 0);
}

// TensorFlow's label maps of COCO's keypoints and of LVIS and Open Images have more fields.
TEST(LabelMapTest, ReadsItemsWithTheFieldsOfTensorFlow) {
  const auto map = LabelMap::Parse(
      "item { id: 1 name: 'person' keypoints { id: 0 label: 'nose' } keypoints { id: 1 } }\n"
      "item { id: 2 name: 'cat' ancestor_ids: [7, 8] descendant_ids: 9 frequency: RARE "
      "instance_count: 12 }\n",
      "m.pbtxt");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->num_classes(), 2);
  EXPECT_EQ(map->Find("cat"), 1);
}

// As TensorFlow's mscoco_complete_label_map.pbtxt.
TEST(LabelMapTest, LeavesOutTheBackground) {
  for (const char* background : {"name: 'background'", "name: '/m/0' display_name: 'background'"}) {
    const auto map = LabelMap::Parse(
        absl::StrCat("item { id: 0 ", background, " } item { id: 2 name: 'cat' }"), "m.pbtxt");
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(map->num_classes(), 2);
    EXPECT_EQ(map->Find("cat"), 1);
    EXPECT_EQ(map->Find("background"), std::nullopt);
  }
  EXPECT_THAT(Error("item { id: 0 name: 'background' }"), HasSubstr("no item of a class"));
  const auto first = LabelMap::Parse("item { id: 1 name: 'background' }", "m.pbtxt");
  EXPECT_TRUE(first.ok()) << "a class like any other: " << first.status();
}

TEST(LabelMapTest, FromNamesNumbersFromOne) {
  const auto map = LabelMap::FromNames({"b", "a"}, "names");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->Find("a"), 1);
  EXPECT_THAT(map->ToText(), HasSubstr("id: 2"));
  EXPECT_THAT(std::string(LabelMap::FromNames({"a", "a"}, "names").status().message()),
              HasSubstr("names: item 2"));
}

TEST(LabelMapTest, AcceptsTheSameNameTwiceInOneItem) {
  const auto map = LabelMap::Parse("item { id: 1 name: 'a' display_name: 'a' }", "m");
  EXPECT_TRUE(map.ok()) << map.status();
}

TEST(LabelMapTest, ErrorsNameTheItemOrTheLine) {
  EXPECT_THAT(Error(""), HasSubstr("m.pbtxt: the label map has no item"));
  EXPECT_THAT(Error("item { id: 0 name: 'a' }"),
              AllOf(HasSubstr("item 1 (\"a\")"), HasSubstr("reserved for the background")));
  EXPECT_THAT(Error("item { id: -3 name: 'a' }"), HasSubstr("id is -3, expected 1 to"));
  EXPECT_THAT(Error("item { id: 2000000000 name: 'a' }"), HasSubstr("id is 2000000000"));
  EXPECT_THAT(Error("item { name: 'a' }"), HasSubstr("has no id"));
  EXPECT_THAT(Error("item { id: 1 }"), HasSubstr("neither name nor display_name"));
  EXPECT_THAT(Error("item { id: 1 name: 'a' } item { id: 1 name: 'b' }"),
              AllOf(HasSubstr("item 2 (\"b\")"), HasSubstr("id 1 is already that of \"a\"")));
  EXPECT_THAT(Error("item { id: 1 name: 'a' } item { id: 2 name: 'a' }"),
              HasSubstr("the name \"a\" is already that of id 1"));
  EXPECT_THAT(Error("item { id: 1 name: 'a' } item { id: 2 name: 'b' display_name: 'a' }"),
              HasSubstr("the name \"a\" is already that of id 1"));
  EXPECT_THAT(Error("item {\n  id: 1\n  name 'a'\n}"), HasSubstr("m.pbtxt:3:"));
  EXPECT_THAT(Error("item {\n  id: 1\n  nam: 'a'\n}"), AllOf(HasSubstr(":3:"), HasSubstr("nam")));
  EXPECT_THAT(Error("item { id: 'x' }"), HasSubstr("m.pbtxt:1:"));
}

TEST(LabelMapTest, LoadNamesThePath) {
  PosixFileSystem files;
  const TestFolder folder;
  const std::string path = folder.Write("a.pbtxt", "item { id: 0 name: 'x' }");
  EXPECT_THAT(std::string(LabelMap::Load(files, path).status().message()), HasSubstr(path));
  EXPECT_EQ(LabelMap::Load(files, path + "x").status().code(), absl::StatusCode::kNotFound);
}

TEST(LabelMapTest, ClassNamesFillGapsWithNumbers) {
  const auto map = LabelMap::Parse("item { id: 1 name: 'cat' } item { id: 3 name: 'dog' }", "m");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->class_names(4), (std::vector<std::string>{"cat", "2", "dog", "4"}));
}

}  // namespace
}  // namespace pushpull
