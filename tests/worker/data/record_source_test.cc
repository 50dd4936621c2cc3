#include "worker/data/record_source.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/example_codec.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Record i holds an image of 2 x (i + 1) pixels and one box with label i mod 3.
std::string Record(int i, const std::string& encoded = "") {
  AnnotatedImage image{absl::StrCat(i, ".png"), absl::StrCat(i), 2, i + 1, std::nullopt, "", {}};
  AnnotatedObject object;
  object.box = {0, 0, 0.5f, 1, i % 3};
  object.text = absl::StrCat("c", i % 3);
  image.objects.push_back(object);
  const auto bytes =
      EncodeExample(image, encoded.empty() ? EncodePng(MakeImage(2, i + 1, 3)) : encoded);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *bytes;
}

std::string Records(int begin, int end) {
  std::string bytes;
  for (int i = begin; i < end; ++i) AppendRecord(Record(i), &bytes);
  return bytes;
}

absl::StatusOr<std::unique_ptr<RecordSource>> Open(const std::string& path, int num_classes = 3,
                                                   const std::vector<std::string>& names = {}) {
  PosixFileSystem files;
  RecordSourceOptions options;
  options.input_paths = {path};
  options.num_classes = num_classes;
  if (!names.empty()) options.label_map = *LabelMap::FromNames(names, "the.pbtxt");
  return RecordSource::Open(files, std::move(options));
}

TEST(RecordSourceTest, OpeningEndsWhenItIsStopped) {
  const TestFolder folder;
  PosixFileSystem files;
  RecordSourceOptions options;
  options.input_paths = {folder.Write("a", Records(0, 100))};
  int asked = 0;
  const absl::Status status =
      RecordSource::Open(files, options, [&asked] { return ++asked > 10; }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(asked, 11);
}

TEST(RecordSourceTest, ReadsRecordsOfAllShardsInOrder) {
  const TestFolder folder;
  folder.Write("a-00000-of-00003", Records(0, 3));
  folder.Write("a-00001-of-00003", "");
  folder.Write("a-00002-of-00003", Records(3, 5));
  const auto source = Open(folder.path() + "/a@3");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->size(), 5);
  EXPECT_THAT((*source)->describe(), AllOf(HasSubstr("5 images, 3 classes"), HasSubstr("3 files")));
  ThreadPool pool(2);
  EXPECT_TRUE((*source)->Check(&pool, NeverStopped).ok());
  std::vector<int> labels(5);
  std::vector<int> widths(5);
  pool.ParallelFor(5, [&](int64_t i) {
    Example example;
    if (!(*source)->Get(i, &example).ok()) return;
    labels[i] = example.boxes.at(0).label;
    widths[i] = example.image.width;
  });
  EXPECT_THAT(labels, testing::ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(widths, testing::ElementsAre(1, 2, 3, 4, 5));
}

TEST(RecordSourceTest, OpenDetectsEveryTruncation) {
  const TestFolder folder;
  const std::string whole = Records(0, 2);
  const size_t first = Records(0, 1).size();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("a.record", whole.substr(0, size));
    const auto source = Open(path);
    if (size == first) {
      EXPECT_TRUE(source.ok()) << source.status();
    } else if (size == 0) {
      EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(source.status().message()), HasSubstr("no record in 1 files"));
    } else {
      EXPECT_EQ(source.status().code(), absl::StatusCode::kDataLoss) << size;
      EXPECT_THAT(std::string(source.status().message()),
                  AllOf(HasSubstr(absl::StrCat("record ", size < first ? 0 : 1, " of ", path)),
                        HasSubstr(absl::StrCat("at byte ", size < first ? 0 : first)),
                        HasSubstr(absl::StrCat("the file ends at byte ", size, ", within"))));
    }
  }
}

TEST(RecordSourceTest, DetectsEveryFlippedByte) {
  const TestFolder folder;
  std::string bytes = Records(0, 2);
  const size_t first = Records(0, 1).size();
  ThreadPool pool(1);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 0x10;
    const auto source = Open(folder.Write("a.record", bytes));
    bytes[i] ^= 0x10;
    const size_t within = i < first ? i : i - first;
    EXPECT_EQ(source.ok(), within >= 12) << i;
    absl::Status status = source.status();
    if (source.ok()) {
      status = (*source)->Check(&pool, NeverStopped);
      Example example;
      const int64_t bad = i < first ? 0 : 1;
      EXPECT_FALSE((*source)->Get(bad, &example).ok()) << i;
      EXPECT_TRUE((*source)->Get(1 - bad, &example).ok()) << i;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << " " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("a.record"), HasSubstr("checksum"), HasSubstr("at byte")));
  }
}

TEST(RecordSourceTest, CheckNamesBadRecordsWithAnyNumberOfThreads) {
  const TestFolder folder;
  std::string bytes = Records(0, 3);
  const std::string jpeg = EncodeJpeg(MakeImage(20, 20, 3));
  AppendRecord(Record(3, jpeg.substr(0, jpeg.size() / 2)), &bytes);
  const size_t offset = bytes.size();
  AppendRecord("no example", &bytes);
  AppendRecord(Record(5), &bytes);
  const std::string path = folder.Write("a.record", bytes);
  for (const int threads : {1, 4}) {
    const auto source = Open(path);
    ASSERT_TRUE(source.ok()) << source.status();
    ThreadPool pool(threads);
    const absl::Status status = (*source)->Check(&pool, NeverStopped);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("2 of 6 images cannot be read"),
                      HasSubstr(absl::StrCat("record 3 of ", path, " at byte ")),
                      HasSubstr("(3.png): the JPEG data are damaged"),
                      HasSubstr(absl::StrCat("record 4 of ", path, " at byte ", offset,
                                             ": not a tf.Example")),
                      Not(HasSubstr("record 5"))));
  }
}

TEST(RecordSourceTest, LeavesUnusableBoxesOutAndReportsTheirPlace) {
  const TestFolder folder;
  const std::string path = folder.Write("a.record", Records(0, 3));
  const auto source = Open(path, 2);
  ASSERT_TRUE(source.ok()) << source.status();
  Example example;
  BoxIssues issues;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*source)->Read(i, &example, &issues).ok());
  EXPECT_TRUE(example.boxes.empty());
  ASSERT_EQ(issues.left_out.size(), 1u);
  EXPECT_THAT(issues.clipped, testing::IsEmpty());
  EXPECT_THAT(issues.left_out[0], AllOf(HasSubstr(absl::StrCat("record 2 of ", path)),
                                        HasSubstr("(2.png) object 0: class id 3")));
  ThreadPool pool(2);
  EXPECT_TRUE((*source)->Check(&pool, NeverStopped).ok());
}

TEST(RecordSourceTest, CheckRefusesRecordsWithoutBoxesForADetector) {
  const TestFolder folder;
  std::string bytes;
  AnnotatedImage image{"a.png", "a", 2, 2, std::nullopt, "", {}};
  AppendRecord(*EncodeExample(image, EncodePng(MakeImage(2, 2, 3))), &bytes);
  ThreadPool pool(2);
  for (const bool one_box : {false, true}) {
    if (one_box) AppendRecord(Record(1), &bytes);
    const std::string path = folder.Write("a.record", bytes);
    EXPECT_EQ((*Open(path))->Check(&pool, NeverStopped).ok(), one_box);
    const absl::Status status = (*Open(path, 1))->Check(&pool, NeverStopped);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("no image has a box that can be used"),
                      HasSubstr(one_box ? "(1.png) object 0: class id 2" : "image/object/bbox/")));
  }
}

// The records have the classes c0, c1 and c2.
TEST(RecordSourceTest, NamesTheClassesThatTheLabelMapDoesNotHave) {
  const TestFolder folder;
  const std::string path = folder.Write("a.record", Records(0, 8));
  ThreadPool pool(2);
  for (const bool only_one : {true, false}) {
    const auto source =
        only_one ? Open(path, 3, {"c0", "c1", "C2"}) : Open(path, 3, {"x", "y", "z"});
    ASSERT_TRUE(source.ok()) << source.status();
    testing::internal::CaptureStderr();
    const absl::Status status = (*source)->Check(&pool, NeverStopped);
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string problem =
        absl::StrCat("the class \"c", only_one ? 2 : 0, "\" is not in the label map the.pbtxt");
    EXPECT_THAT(log,
                AllOf(HasSubstr(absl::StrCat(problem, "; every box of this class is left out")),
                      HasSubstr("--label_map=the.pbtxt lists them")));
    EXPECT_THAT((*source)->first_box_left_out(),
                HasSubstr(absl::StrCat("(", only_one ? 2 : 0, ".png) object 0: ", problem)));
    if (only_one) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(log,
                  HasSubstr("the label map the.pbtxt does not have the class \"c2\" (2 boxes); "
                            "every box of such a class is left out"));
      continue;
    }
    EXPECT_THAT(log, HasSubstr("\"c0\" (3 boxes), \"c1\" (3 boxes), \"c2\" (2 boxes)"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("(0.png) object 0: ", problem)),
                      Not(HasSubstr("image/object/bbox"))));
  }
}

// The evaluator does not check its data, it only reads them.
TEST(RecordSourceTest, ReadingLogsEachClassThatTheLabelMapDoesNotHaveOnce) {
  const TestFolder folder;
  const auto source = Open(folder.Write("a.record", Records(0, 8)), 3, {"c0", "c1", "C2"});
  ASSERT_TRUE(source.ok()) << source.status();
  testing::internal::CaptureStderr();
  Example example;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE((*source)->Get(i, &example).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line =
      "the class \"c2\" is not in the label map the.pbtxt; every box of this class is left out";
  ASSERT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line));
}

TEST(RecordSourceTest, RefusesFilesThatAreNoRecordFiles) {
  const TestFolder folder;
  const std::string gzip = folder.Write("a.gz", Gzip(Records(0, 2)));
  EXPECT_THAT(std::string(Open(gzip).status().message()),
              AllOf(HasSubstr(gzip), HasSubstr("this is a gzip file; decompress it first")));
  EXPECT_THAT(
      std::string(
          Open(folder.Write("a.txt", "This is a text of some length.\n")).status().message()),
      HasSubstr("checksum of the length"));
  EXPECT_EQ(Open(folder.path() + "/none").status().code(), absl::StatusCode::kNotFound);
}

TEST(RecordSourceTest, ReportsAFileTruncatedAfterOpening) {
  const TestFolder folder;
  const std::string bytes = Records(0, 2);
  const std::string path = folder.Write("a.record", bytes);
  const auto source = Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  const size_t first = Records(0, 1).size();
  for (const size_t size : {bytes.size() - 10, first + 5, first}) {
    folder.Write("a.record", bytes.substr(0, size));
    Example example;
    EXPECT_TRUE((*source)->Get(0, &example).ok());
    const absl::Status status = (*source)->Get(1, &example);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(absl::StrCat("record 1 of ", path, " at byte ", first)),
              HasSubstr(absl::StrCat(path, " ends at byte ", size, ", expected at least "))));
  }
  folder.Write("a.record", bytes.substr(0, first - 5));
  Example example;
  EXPECT_THAT(std::string((*source)->Get(1, &example).message()),
              HasSubstr(absl::StrCat(path, " ends at byte ", first - 5)));
}

TEST(RecordSourceTest, RefusesALabelMapWithTooManyClasses) {
  EXPECT_THAT(std::string(Open("none", 2, {"a", "b", "c"}).status().message()),
              AllOf(HasSubstr("the.pbtxt: the label map's ids go up to 3"),
                    HasSubstr("num_classes: 2"), HasSubstr("model.ssd.num_classes")));
}

}  // namespace
}  // namespace pushpull
