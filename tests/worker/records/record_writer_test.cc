#include "worker/records/record_writer.h"

#include <atomic>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/test_folder.h"
#include "worker/records/record_check.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Image i has 2 x (i + 1) pixels and i mod 3 boxes. The test chooses which images and boxes are
// bad.
class FakeSet final : public AnnotatedSet {
 public:
  explicit FakeSet(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const LabelMap& label_map() const override { return label_map_; }
  absl::StatusOr<LoadedImage> Load(int64_t index) const override {
    if (bad_images.count(index)) return absl::DataLossError(absl::StrCat("image ", index));
    if (unread_images.count(index)) {
      return MarkPassing(absl::InternalError(absl::StrCat("image ", index, " cannot be read")));
    }
    LoadedImage image;
    image.annotation.filename = absl::StrCat(index, ".png");
    image.annotation.height = 2;
    image.annotation.width = static_cast<int>(index) + 1;
    for (int i = 0; i < index % 3; ++i) {
      AnnotatedObject object;
      object.box = {0, 0, 1, 1, i};
      object.text = label_map_.name(i);
      image.annotation.objects.push_back(object);
    }
    if (bad_boxes.count(index)) image.issues.left_out.push_back(absl::StrCat("box of ", index));
    if (clipped_boxes.count(index)) {
      image.issues.clipped.push_back(absl::StrCat("clipped box of ", index));
    }
    image.encoded = EncodePng(MakeImage(2, static_cast<int>(index) + 1, 3));
    if (damaged_images.count(index)) {
      image.damage = absl::StrCat("damage of ", index);
      image.encoded = EndJpegEarly(EncodeJpeg(MakeImage(16, 16, 3)));
    }
    return image;
  }

  std::set<int64_t> bad_images;
  std::set<int64_t> unread_images;
  std::set<int64_t> bad_boxes;
  std::set<int64_t> clipped_boxes;
  std::set<int64_t> damaged_images;

 private:
  const int64_t size_;
  const LabelMap label_map_ = *LabelMap::FromNames({"a", "b"}, "names");
};

class RecordWriterTest : public testing::Test {
 protected:
  absl::StatusOr<RecordSummary> Write(const AnnotatedSet& set, int shards, int threads = 2) {
    options_.output = folder_.path() + "/set";
    options_.num_shards = shards;
    ThreadPool pool(threads);
    return WriteRecords(&files_, set, options_, &pool);
  }
  std::unique_ptr<RecordSource> Open(const std::string& name) {
    RecordSourceOptions options;
    options.input_paths = {folder_.path() + "/" + name};
    options.num_classes = 2;
    auto source = RecordSource::Open(files_, std::move(options));
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }
  std::vector<std::string> Names() { return *files_.List(folder_.path()); }

  PosixFileSystem files_;
  TestFolder folder_;
  RecordWriterOptions options_;
};

TEST_F(RecordWriterTest, CreatesTheFolderOfTheOutput) {
  options_.output = folder_.path() + "/data/of/set";
  ThreadPool pool(1);
  const auto summary = WriteRecords(&files_, FakeSet(3), options_, &pool);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_NE(Open("data/of/set-00000-of-00001"), nullptr);
}

TEST_F(RecordWriterTest, LeavesNoNewFolderBehindIfNothingIsWritten) {
  options_.output = folder_.path() + "/data/of/set";
  ThreadPool pool(1);
  FakeSet set(3);
  set.bad_images = {1};
  ASSERT_TRUE(WriteRecords(&files_, set, options_, &pool).ok());
  set.unread_images = {2};
  ASSERT_FALSE(WriteRecords(&files_, set, options_, &pool).ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(RecordWriterTest, ShardsHoldEveryImageInOrder) {
  int64_t last = 0;
  options_.progress.report = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 100);
    last = done;
  };
  const auto summary = Write(FakeSet(100), 3);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(last, 100);
  EXPECT_EQ(summary->num_images, 100);
  EXPECT_EQ(summary->num_boxes, 99);
  EXPECT_THAT(summary->problems, IsEmpty());
  EXPECT_EQ(summary->files.size(), 3u);
  EXPECT_THAT(Names(),
              ElementsAre("set-00000-of-00003", "set-00001-of-00003", "set-00002-of-00003"));
  const auto source = Open("set@3");
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(source->size(), 100);
  Example example;
  ASSERT_TRUE(source->Get(34, &example).ok());  // the first image of the second shard
  EXPECT_EQ(example.image.width, 2);
  ASSERT_TRUE(source->Get(1, &example).ok());
  EXPECT_EQ(example.image.width, 4);
  ThreadPool pool(2);
  const auto check = CheckRecords(*source, {}, &pool);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->num_images, 100);
  EXPECT_EQ(check->num_boxes, 99);
  EXPECT_THAT(check->problems, IsEmpty());
}

TEST_F(RecordWriterTest, BytesDoNotDependOnTheNumberOfThreads) {
  ASSERT_TRUE(Write(FakeSet(70), 1, 1).ok());
  const auto one = ReadWholeFile(files_, folder_.path() + "/set-00000-of-00001");
  ASSERT_TRUE(Write(FakeSet(70), 1, 4).ok());
  const auto four = ReadWholeFile(files_, folder_.path() + "/set-00000-of-00001");
  EXPECT_TRUE(*one == *four);
}

TEST_F(RecordWriterTest, RefusesOrSkipsBadDataAndAlwaysNamesThem) {
  FakeSet set(80);
  set.bad_images = {70};
  set.bad_boxes = {4, 71};
  const auto refused = Write(set, 2);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_THAT(refused->problems, ElementsAre("box of 4", "image 70", "box of 71"));
  EXPECT_THAT(refused->files, IsEmpty());
  EXPECT_THAT(Names(), IsEmpty());
  options_.bad_data = BadData::kSkip;
  const auto skipped = Write(set, 2);
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_THAT(skipped->problems, ElementsAre("box of 4", "image 70", "box of 71"));
  EXPECT_EQ(skipped->num_images, 79);
  EXPECT_EQ(skipped->num_bad_images, 1);
  EXPECT_EQ(skipped->num_bad_boxes, 2);
  EXPECT_EQ(Open("set@2")->size(), 79);
}

TEST_F(RecordWriterTest, AnImageThatCannotBeReadNowIsNotLeftOut) {
  FakeSet set(80);
  set.bad_images = {3};
  set.unread_images = {40, 70};
  for (const BadData bad_data : {BadData::kSkip, BadData::kRefuse}) {
    options_.bad_data = bad_data;
    const absl::Status status = Write(set, 2).status();
    EXPECT_TRUE(IsPassing(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("image 40 cannot be read"));
    EXPECT_THAT(Names(), IsEmpty());
  }
}

TEST_F(RecordWriterTest, ARecordThatCannotBeReadNowIsNotABadOne) {
  ASSERT_TRUE(Write(FakeSet(80), 1).ok());
  FailingReads files(&files_);
  RecordSourceOptions options;
  options.input_paths = {folder_.path() + "/set@1"};
  options.num_classes = 2;
  const auto source = RecordSource::Open(files, std::move(options));
  ASSERT_TRUE(source.ok()) << source.status();
  files.Fail(FailingReads::What::kRead, "", MarkPassing(absl::InternalError("no answer")), 1);
  ThreadPool pool(1);
  const absl::Status status = CheckRecords(**source, {}, &pool).status();
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("record 0 of "));
}

TEST_F(RecordWriterTest, ClippedBoxesAreNamedAndNoProblem) {
  FakeSet set(80);
  set.clipped_boxes = {4, 71};
  const auto summary = Write(set, 1);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->clipped, ElementsAre("clipped box of 4", "clipped box of 71"));
  EXPECT_THAT(summary->problems, IsEmpty());
  EXPECT_EQ(summary->num_bad_boxes, 0);
  EXPECT_EQ(Open("set@1")->size(), 80);
}

TEST_F(RecordWriterTest, DamagedImagesThatDecodeAreNamedAndNoProblem) {
  FakeSet set(80);
  set.damaged_images = {4, 71};
  const auto summary = Write(set, 1);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->damaged, ElementsAre("damage of 4", "damage of 71"));
  EXPECT_THAT(summary->problems, IsEmpty());
  EXPECT_EQ(summary->num_images, 80);
  ThreadPool pool(2);
  const auto check = CheckRecords(*Open("set@1"), {}, &pool);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_THAT(check->damaged,
              ElementsAre(HasSubstr("(4.png): the JPEG data are damaged"), HasSubstr("(71.png)")));
  EXPECT_THAT(check->problems, IsEmpty());
  EXPECT_EQ(check->num_images, 80);
  EXPECT_EQ(check->num_boxes, 79);
}

TEST_F(RecordWriterTest, RefusesASecondSetOfTheSamePrefixWithAnotherNumberOfShards) {
  ASSERT_TRUE(Write(FakeSet(4), 1).ok());
  for (const char* name : {"set-00000-of-0000x", "set-a-00000-of-00009", "set-00000-of-000010"}) {
    folder_.Write(name, "");
  }
  EXPECT_TRUE(Write(FakeSet(4), 1).ok()) << "the same names are replaced";
  const std::vector<std::string> before = Names();
  const absl::Status status = Write(FakeSet(4), 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_.path() + "/set-00000-of-00001 is of a data set with another"),
                    HasSubstr("a glob such as set-*"), HasSubstr("--output")));
  EXPECT_EQ(Names(), before);
}

TEST_F(RecordWriterTest, LeavesNoFilesWithoutAGoodImage) {
  FakeSet set(2);
  set.bad_images = {0, 1};
  options_.bad_data = BadData::kSkip;
  const auto summary = Write(set, 1);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_images, 0);
  EXPECT_THAT(summary->files, IsEmpty());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(RecordWriterTest, LeavesNoFilesWhenStoppedOrWithAFileInPlaceOfTheFolder) {
  folder_.Write("set-00000-of-00002", "old");
  std::atomic<bool> stop = false;
  options_.progress.stop = &stop;
  options_.progress.report = [&](int64_t, int64_t) { stop = true; };
  EXPECT_EQ(Write(FakeSet(100), 2).status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Names(), ElementsAre("set-00000-of-00002"));
  EXPECT_EQ(*ReadWholeFile(files_, folder_.path() + "/set-00000-of-00002"), "old");
  std::filesystem::remove_all(folder_.path());
  ASSERT_TRUE(WriteFileAtomically(files_, folder_.path(), "a file").ok());
  stop = false;
  EXPECT_FALSE(Write(FakeSet(3), 2).ok());
  EXPECT_EQ(*ReadWholeFile(files_, folder_.path()), "a file");
}

TEST_F(RecordWriterTest, CheckNamesBadRecordsInOrder) {
  ASSERT_TRUE(Write(FakeSet(80), 1).ok());
  const std::string path = folder_.path() + "/set-00000-of-00001";
  std::string bytes = *ReadWholeFile(files_, path);
  bytes[bytes.size() - 6] ^= 1;
  folder_.Write("set-00000-of-00001", bytes);
  const auto source = Open("set-00000-of-00001");
  ASSERT_NE(source, nullptr);
  ThreadPool pool(2);
  const auto check = CheckRecords(*source, {}, &pool);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->num_images, 79);
  EXPECT_EQ(check->num_bad_images, 1);
  EXPECT_THAT(check->problems, ElementsAre(HasSubstr(absl::StrCat("record 79 of ", path))));
  std::atomic<bool> stop = true;
  RecordProgress stopped;
  stopped.stop = &stop;
  EXPECT_EQ(CheckRecords(*source, stopped, &pool).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace pushpull
