// Tests what a source of TFRecords says of its data: its description, boxes that it leaves out or
// clips, and errors of the disk.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/base/record_io.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/annotated_image.h"
#include "worker/data/example_codec.h"
#include "worker/data/record_source.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Record i has the image i.png and a box that reaches from the left edge to `xmax`.
std::string BoxRecords(int n, float xmax) {
  std::string bytes;
  for (int i = 0; i < n; ++i) {
    AnnotatedImage image{absl::StrCat(i, ".png"), absl::StrCat(i), 2, 2, std::nullopt, "", {}};
    AnnotatedObject object;
    object.box = {0, 0, 1, xmax, 0};
    object.text = "cat";
    image.objects.push_back(object);
    AppendRecord(*EncodeExample(image, EncodePng(MakeImage(2, 2, 3))), &bytes);
  }
  return bytes;
}

int NumMatches(absl::string_view text, absl::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class RecordBoxesTest : public testing::Test {
 protected:
  RecordBoxesTest() { options_.num_classes = 1; }

  std::unique_ptr<RecordSource> Open(std::vector<std::string> paths) {
    options_.input_paths = std::move(paths);
    auto source = RecordSource::Open(files_, options_);
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }
  // Reads all examples, the last one first, and returns what was logged.
  static std::string ReadAll(const RecordSource& source) {
    testing::internal::CaptureStderr();
    Example example;
    for (int64_t i = source.size() - 1; i >= 0; --i) {
      EXPECT_EQ(source.GetEncoded(i, &example), absl::OkStatus());
    }
    return testing::internal::GetCapturedStderr();
  }
  static std::string LogOfCheck(const RecordSource& source) {
    ThreadPool pool(2);
    testing::internal::CaptureStderr();
    source.Check(&pool, NeverStopped).IgnoreError();
    return testing::internal::GetCapturedStderr();
  }

  const TestFolder folder_;
  PosixFileSystem files_;
  RecordSourceOptions options_;
};

TEST_F(RecordBoxesTest, TheFirstTwentyClippedBoxesAreLogged) {
  const auto source = Open({folder_.Write("a.record", BoxRecords(kMaxLoggedBoxes + 5, 1.05f))});
  ASSERT_NE(source, nullptr);
  const std::string log = ReadAll(*source);
  EXPECT_EQ(NumMatches(log, "reaches outside the image and is clipped to it"), kMaxLoggedBoxes);
  EXPECT_EQ(NumMatches(log, "(further ones are not logged; make_records --check lists all)"), 1);
  EXPECT_THAT(log, AllOf(HasSubstr("(5.png)"), Not(HasSubstr("(4.png)")), Not(HasSubstr("left"))));
  EXPECT_EQ(source->first_box_left_out(), "");
  EXPECT_THAT(LogOfCheck(*source),
              AllOf(HasSubstr("25 boxes reach outside their images and are clipped; "
                              "make_records --check lists them"),
                    Not(HasSubstr("cannot be used"))));
}

TEST_F(RecordBoxesTest, TheFirstTwentyBoxesLeftOutAreLogged) {
  const auto source = Open({folder_.Write("a.record", BoxRecords(kMaxLoggedBoxes + 5, 1.5f))});
  ASSERT_NE(source, nullptr);
  const std::string log = ReadAll(*source);
  EXPECT_EQ(NumMatches(log, "; the box is left out"), kMaxLoggedBoxes);
  EXPECT_EQ(NumMatches(log, "(further ones are not logged; make_records --check lists all)"), 1);
  EXPECT_THAT(source->first_box_left_out(), HasSubstr("(0.png) object 0: the box reaches outside"));
  EXPECT_THAT(LogOfCheck(*source),
              AllOf(HasSubstr("25 boxes cannot be used and are left out; make_records --check "
                              "lists them"),
                    Not(HasSubstr("are clipped"))));
}

TEST_F(RecordBoxesTest, GoodBoxesAreNotMentioned) {
  const auto source = Open({folder_.Write("a.record", BoxRecords(2, 1))});
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(ReadAll(*source), "");
  EXPECT_EQ(LogOfCheck(*source), "");
}

TEST_F(RecordBoxesTest, DescribesItsFiles) {
  const std::string a = folder_.Write("a.record", BoxRecords(2, 1));
  const std::string b = folder_.Write("b.record", BoxRecords(1, 1));
  EXPECT_EQ(Open({a})->describe(), absl::StrCat("TFRecords ", a, " (1 file): 2 images, 1 classes"));
  EXPECT_EQ(Open({a, b})->describe(),
            absl::StrCat("TFRecords ", a, " ... ", b, " (2 files): 3 images, 1 classes"));
  EXPECT_THAT(Open({a})->class_names(), ElementsAre("1"));
  options_.label_map = *LabelMap::FromNames({"cat"}, "names");
  EXPECT_THAT(Open({a})->class_names(), ElementsAre("cat"));
}

TEST_F(RecordBoxesTest, SaysWhichFilesHaveNoRecord) {
  for (const int files : {1, 2}) {
    options_.input_paths.push_back(folder_.Write(absl::StrCat(files), ""));
    const absl::Status status = RecordSource::Open(files_, options_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message(), absl::StrCat(folder_.path(), "/1", files == 1 ? "" : " ...",
                                             ": no record in ", files, " files"));
  }
}

TEST_F(RecordBoxesTest, OnlyADetectorNeedsBoxes) {
  const std::string path = folder_.Write("a.record", BoxRecords(1, 1));
  EXPECT_THAT(Open({path})->place_of_boxes(), HasSubstr("image/object/bbox/"));
  options_.annotation = Annotation::kImageLabel;
  EXPECT_EQ(Open({path})->place_of_boxes(), "");
}

TEST_F(RecordBoxesTest, CountsTheRecordsOfEachFile) {
  const std::string bytes = BoxRecords(2, 1);
  const std::string damaged = folder_.Write("b.record", bytes.substr(0, bytes.size() - 1));
  options_.input_paths = {folder_.Write("a.record", bytes), damaged};
  EXPECT_THAT(std::string(RecordSource::Open(files_, options_).status().message()),
              HasSubstr(absl::StrCat("record 1 of ", damaged)));

  const std::string outside = folder_.Write("c.record", BoxRecords(1, 1.5f));
  const auto source = Open({folder_.Write("a.record", bytes), outside});
  ASSERT_NE(source, nullptr);
  Example example;
  BoxIssues issues;
  EXPECT_EQ(source->Read(2, &example, &issues), absl::OkStatus());
  EXPECT_THAT(issues.left_out, ElementsAre(HasSubstr(absl::StrCat("record 0 of ", outside))));
}

// An error of the disk may pass, which a damaged file does not.
TEST_F(RecordBoxesTest, AnErrorOfTheDiskIsNotTakenForDamage) {
  FailingReads failing(&files_);
  const absl::Status broken = MarkPassing(absl::InternalError("broken disk"));
  options_.input_paths = {folder_.Write("a.record", BoxRecords(2, 1))};
  failing.Fail(FailingReads::What::kRead, "a.record", broken, 1);
  const absl::Status unopened = RecordSource::Open(failing, options_).status();
  EXPECT_TRUE(absl::IsInternal(unopened)) << unopened;
  EXPECT_TRUE(IsPassing(unopened));
  EXPECT_EQ(unopened.message(), "record 0 of broken disk");
  const auto source = RecordSource::Open(failing, options_);
  ASSERT_TRUE(source.ok()) << source.status();
  failing.Fail(FailingReads::What::kRead, "a.record", broken, 1);
  Example example;
  const absl::Status unread = (*source)->Get(1, &example);
  EXPECT_TRUE(absl::IsInternal(unread)) << unread;
  EXPECT_TRUE(IsPassing(unread));
  EXPECT_EQ((*source)->Get(1, &example), absl::OkStatus());
}

}  // namespace
}  // namespace pushpull
