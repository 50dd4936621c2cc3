#include "worker/data/record_files.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordFilesTest : public testing::Test {
 protected:
  RecordFilesTest() {
    for (const char* name : {"a-00000-of-00002", "a-00001-of-00002", "b.record", "odd[1].record"}) {
      folder_.Write(name, "");
    }
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_.path(), "/", name);
  }
  absl::StatusOr<std::vector<std::string>> Expand(const std::vector<std::string>& names) const {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(Path(name));
    return ExpandRecordPaths(paths);
  }
  absl::Status Error(const std::vector<std::string>& names) const { return Expand(names).status(); }

  TestFolder folder_;
};

TEST_F(RecordFilesTest, ExpandsFilesGlobsAndShards) {
  const std::string a0 = Path("a-00000-of-00002");
  const std::string a1 = Path("a-00001-of-00002");
  for (const char* pattern : {"a@2",
                              "a-????"
                              "?-of-00002",
                              "a-*-of-00002", "a-*", "a*"}) {
    const auto files = Expand({pattern});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_THAT(*files, ElementsAre(a0, a1)) << pattern;
  }
  const auto mixed = Expand({"b.record", "a-00001-of-00002", "odd[1].record"});
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_THAT(*mixed, ElementsAre(Path("b.record"), a1, Path("odd[1].record")));
  folder_.Write("x@3", "");
  EXPECT_THAT(*Expand({"x@3"}), ElementsAre(Path("x@3")));
}

TEST_F(RecordFilesTest, NamesMissingFiles) {
  const auto expect_missing = [&](const std::string& name, const std::string& text) {
    const absl::Status status = Error({name});
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect_missing("none.record", "none.record: no such file");
  expect_missing("none*", "no file matches");
  expect_missing("a@3", "3 of the 3 shards");
  folder_.Write("c-00001-of-00003", "");
  expect_missing(
      "c@3", absl::StrCat("2 of the 3 shards of ", Path("c"), " do not exist, the first of them ",
                          Path("c-00000-of-00003")));
  expect_missing(
      "c-????"
      "?-of-00003",
      "2 of the 3 shards");
  expect_missing("c*", "2 of the 3 shards");
  EXPECT_THAT(*Expand({"c-0000[01]-of-00003"}), ElementsAre(Path("c-00001-of-00003")));
}

// make_records with another --shards leaves the files of the call before.
TEST_F(RecordFilesTest, RefusesAGlobThatMatchesTwoSetsOfShards) {
  folder_.Write("a-00000-of-00001", "");
  for (const char* pattern : {"a-????\?-of-????\?", "a*"}) {
    const absl::Status status = Error({pattern});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(pattern), HasSubstr(Path("a") + "@1"), HasSubstr(Path("a") + "@2")));
  }
  EXPECT_THAT(*Expand({"a@1"}), ElementsAre(Path("a-00000-of-00001")));
}

TEST_F(RecordFilesTest, RefusesInvalidPaths) {
  const auto error = [](const std::string& path) {
    const absl::Status status = ExpandRecordPaths({path}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    return std::string(status.message());
  };
  EXPECT_THAT(error("PATH_TO_BE_CONFIGURED/a.record-????"
                    "?-of-00100"),
              HasSubstr("placeholder of a sample config"));
  EXPECT_THAT(error("gs://bucket/a.record"), HasSubstr("remote storage is not read"));
  EXPECT_THAT(error(folder_.path()), HasSubstr("a folder, expected a file"));
  EXPECT_THAT(error(Path("a@0")), HasSubstr("number of shards is 0"));
  EXPECT_THAT(std::string(ExpandRecordPaths({}).status().message()), HasSubstr("no input path"));
  EXPECT_THAT(std::string(Error({"b.record", "b.*"}).message()),
              AllOf(HasSubstr("b.record"), HasSubstr("meant twice")));
  folder_.MakeFolder("b.folder");
  EXPECT_THAT(std::string(Error({"b.*"}).message()), HasSubstr("b.folder: a folder"));
}

}  // namespace
}  // namespace pushpull
