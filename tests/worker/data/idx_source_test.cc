#include "worker/data/idx_source.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class IdxSourceTest : public ::testing::Test {
 protected:
  absl::Status OpenError(absl::string_view images, absl::string_view labels, int num_classes = 10) {
    images_path_ = folder_.Write("images", images);
    labels_path_ = folder_.Write("labels", labels);
    return IdxSource::Open(images_path_, labels_path_, num_classes).status();
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code,
                   ::testing::Matcher<std::string> message) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), message);
  }

  TestFolder folder_;
  std::string images_path_;
  std::string labels_path_;
};

TEST_F(IdxSourceTest, ReadsPlainAndGzip) {
  const std::string images = IdxImages(7, 3, 4);
  const std::string labels = IdxLabels(7, 5);
  for (const bool gzip : {false, true}) {
    const std::string i = folder_.Write("i", gzip ? Gzip(images) : images);
    const std::string l = folder_.Write("l", gzip ? Gzip(labels) : labels);
    auto source = IdxSource::Open(i, l, 5);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->size(), 7);
    EXPECT_EQ((*source)->num_classes(), 5);
    EXPECT_THAT((*source)->describe(), HasSubstr("7 images of 3 x 4 x 1"));
    Example example;
    ASSERT_TRUE((*source)->Get(6, &example).ok());
    EXPECT_EQ(example.label, 1);
    EXPECT_EQ(example.image.height, 3);
    EXPECT_EQ(example.image.width, 4);
    EXPECT_EQ(example.image.channels, 1);
    for (int k = 0; k < 12; ++k) EXPECT_EQ(example.image.pixels[k], 6 * 12 + k);
  }
}

TEST_F(IdxSourceTest, ReadsGzipOfSeveralMembersAndColour) {
  const std::string data(2 * 2 * 2 * 3, '\x05');
  const std::string images = Idx(0x804, {2, 2, 2, 3}, data);
  const std::string i = folder_.Write("i", Gzip(images.substr(0, 20)) + Gzip(images.substr(20)));
  const std::string l = folder_.Write("l", IdxLabels(2, 2));
  auto source = IdxSource::Open(i, l, 2);
  ASSERT_TRUE(source.ok()) << source.status();
  Example example;
  ASSERT_TRUE((*source)->Get(1, &example).ok());
  EXPECT_EQ(example.image.channels, 3);
  EXPECT_EQ(example.image.pixels, std::vector<uint8_t>(12, 5));
}

// Data of more than 1 MiB are read in several pieces.
TEST_F(IdxSourceTest, ReadsDataOfSeveralPieces) {
  const uint32_t n = 3000, side = 28;  // 2.2 MiB of images
  for (const bool gzip : {false, true}) {
    const std::string images = IdxImages(n, side, side);
    auto source = IdxSource::Open(folder_.Write("i", gzip ? Gzip(images) : images),
                                  folder_.Write("l", IdxLabels(n, 10)), 10);
    ASSERT_TRUE(source.ok()) << source.status();
    Example example;
    std::string pixels = images.substr(0, 16);  // the header
    for (uint32_t i = 0; i < n; ++i) {
      ASSERT_TRUE((*source)->Get(i, &example).ok());
      pixels.append(example.image.pixels.begin(), example.image.pixels.end());
    }
    EXPECT_TRUE(pixels == images);
  }
}

TEST_F(IdxSourceTest, OpeningEndsWhenItIsStopped) {
  const std::string images = folder_.Write("i", Gzip(IdxImages(3000, 28, 28)));
  const std::string labels = folder_.Write("l", IdxLabels(3000, 10));
  int asked = 0;
  const auto open = [&](int calls) {
    asked = 0;
    return IdxSource::Open(images, labels, 10, [&] { return ++asked >= calls; }).status();
  };
  ExpectError(open(2), absl::StatusCode::kCancelled,
              testing::Eq("stopped while opening " + images));
  EXPECT_EQ(asked, 2);
  // The images have three pieces, the labels one.
  ExpectError(open(4), absl::StatusCode::kCancelled,
              testing::Eq("stopped while opening " + labels));
  EXPECT_TRUE(open(5).ok());
}

TEST_F(IdxSourceTest, NamesAllMissingFiles) {
  const absl::Status status = IdxSource::Open("/none/images", "/none/labels", 10).status();
  ExpectError(status, absl::StatusCode::kNotFound,
              AllOf(HasSubstr("/none/images"), HasSubstr("/none/labels")));
}

TEST_F(IdxSourceTest, AReadErrorMayPass) {
  const std::string labels = folder_.Write("labels", IdxLabels(1, 1));
  const absl::Status status = IdxSource::Open(kFileWithIoError, labels, 10).status();
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(kFileWithIoError, ": cannot be read: ")));
}

TEST_F(IdxSourceTest, ReportsAWrongMagicNumber) {
  ExpectError(OpenError(Idx(0xd03, {1, 1, 1}, "x"), IdxLabels(1, 1)),
              absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("/images: wrong magic number 0x00000d03"), HasSubstr("0x00000803")));
  ExpectError(OpenError(IdxImages(1, 1, 1), "not an IDX file"), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("/labels: wrong magic number 0x6e6f7420"), HasSubstr("0x00000801")));
}

TEST_F(IdxSourceTest, RecognisesSwappedPaths) {
  ExpectError(OpenError(IdxLabels(3, 3), IdxImages(3, 2, 2)), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("this is a file of labels: are the two paths swapped?"),
                    HasSubstr("this is a file of images")));
}

TEST_F(IdxSourceTest, DetectsTruncationAtEveryByte) {
  const std::string images = IdxImages(4, 3, 3);
  const std::string labels = IdxLabels(4, 4);
  for (size_t size = 0; size < images.size(); ++size) {
    ASSERT_EQ(OpenError(images.substr(0, size), labels).code(), absl::StatusCode::kDataLoss)
        << size;
  }
  for (size_t size = 0; size < labels.size(); ++size) {
    ASSERT_EQ(OpenError(images, labels.substr(0, size)).code(), absl::StatusCode::kDataLoss)
        << size;
  }
  ExpectError(
      OpenError(images.substr(0, 30), labels), absl::StatusCode::kDataLoss,
      HasSubstr("/images: truncated: the IDX header announces 4 x 3 x 3 = 36 bytes of data, "
                "got 14"));
  ExpectError(OpenError(images.substr(0, 10), labels), absl::StatusCode::kDataLoss,
              HasSubstr("/images: truncated in the IDX header: 4 bytes of dimension expected at "
                        "byte 8, got 2"));
}

TEST_F(IdxSourceTest, DetectsGzipTruncationAtEveryByte) {
  const std::string images = Gzip(IdxImages(4, 3, 3));
  const std::string labels = Gzip(IdxLabels(4, 4));
  for (size_t size = 2; size < images.size(); ++size) {
    const absl::Status status = OpenError(images.substr(0, size), labels);
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr("the file is truncated"));
  }
}

TEST_F(IdxSourceTest, DetectsDamagedGzip) {
  std::string images = Gzip(IdxImages(4, 3, 3));
  images[images.size() - 6] ^= 1;  // a bit of the checksum
  ExpectError(OpenError(images, IdxLabels(4, 4)), absl::StatusCode::kDataLoss,
              AllOf(HasSubstr("/images: bad gzip at byte"), HasSubstr("incorrect data check")));
  ExpectError(OpenError(Gzip(IdxImages(4, 3, 3)) + "rest", IdxLabels(4, 4)),
              absl::StatusCode::kDataLoss, HasSubstr("bytes left over after the end"));
}

TEST_F(IdxSourceTest, RefusesTrailingBytes) {
  ExpectError(OpenError(IdxImages(4, 3, 3) + "abc", IdxLabels(4, 4)),
              absl::StatusCode::kInvalidArgument,
              HasSubstr("/images: 3 bytes left over after the 36 bytes"));
  ExpectError(OpenError(IdxImages(4, 3, 3), Gzip(IdxLabels(4, 4) + "x")),
              absl::StatusCode::kInvalidArgument, HasSubstr("/labels: 1 bytes left over"));
}

TEST_F(IdxSourceTest, RefusesALabelOutOfRange) {
  ExpectError(OpenError(IdxImages(4, 3, 3), Idx(0x801, {4}, absl::string_view("\0\1\12\3", 4))),
              absl::StatusCode::kInvalidArgument,
              HasSubstr("/labels: label 2 is 10, out of range: the model has 10 classes (0 to 9)"));
}

TEST_F(IdxSourceTest, RefusesDifferentCounts) {
  ExpectError(OpenError(IdxImages(4, 3, 3), IdxLabels(5, 5)), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("/images has 4 images"), HasSubstr("/labels has 5 labels")));
}

TEST_F(IdxSourceTest, RefusesAbsurdDimensions) {
  ExpectError(OpenError(IdxImages(0, 3, 3), IdxLabels(0, 1)), absl::StatusCode::kInvalidArgument,
              HasSubstr("holds no examples"));
  ExpectError(OpenError(Idx(0x803, {1, 0, 3}, ""), IdxLabels(1, 1)),
              absl::StatusCode::kInvalidArgument, HasSubstr("IDX dimensions 1 x 0 x 3"));
  ExpectError(OpenError(Idx(0x804, {1, 1, 1, 2}, "ab"), IdxLabels(1, 1)),
              absl::StatusCode::kInvalidArgument, HasSubstr("IDX dimensions 1 x 1 x 1 x 2"));
  // A false header must not make the reader allocate the claimed size.
  ExpectError(OpenError(Idx(0x803, {0xffffffff, 0x8000, 0x8000}, "x"), IdxLabels(1, 1)),
              absl::StatusCode::kInvalidArgument, HasSubstr("are read into memory"));
  // The product of the dimensions exceeds 128 bits.
  const uint32_t most = 0xffffffff;
  ExpectError(OpenError(Idx(0x804, {most, most, most, most}, "x"), IdxLabels(1, 1)),
              absl::StatusCode::kInvalidArgument, HasSubstr("4294967295 x 4294967295"));
  ExpectError(OpenError(Idx(0x803, {5000000, 28, 28}, "x"), Idx(0x801, {5000000}, "")),
              absl::StatusCode::kDataLoss,
              AllOf(HasSubstr("= 3920000000 bytes of data, got 1"),
                    HasSubstr("= 5000000 bytes of data, got 0")));
}

// The header of the compressed file decides. The data after it are damaged, which nobody notices
// because they are not read.
TEST_F(IdxSourceTest, RefusesABombBeforeInflatingIt) {
  const auto bomb = [](const std::string& header) {
    std::string bytes = Gzip(header + std::string(1 << 20, '\0'));
    bytes.resize(bytes.size() / 2);
    return bytes;
  };
  ExpectError(OpenError(bomb(Idx(0x803, {5500000, 28, 28}, "")), IdxLabels(4, 4)),
              absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("/images: "), HasSubstr("announces 5500000 x 28 x 28 bytes"),
                    HasSubstr("at most 4294967296 are read")));
  ExpectError(OpenError(IdxImages(4, 3, 3), bomb(Idx(0x801, {0xffffffff}, ""))),
              absl::StatusCode::kInvalidArgument, HasSubstr("/labels has 4294967295 labels"));
}

// The reader must not inflate gigabytes only to count unannounced bytes: it must not reach the end
// of this file, which is damaged.
TEST_F(IdxSourceTest, DoesNotInflateAllUnannouncedBytes) {
  std::string images = Gzip(IdxImages(4, 3, 3) + std::string(8 << 20, '\0'));
  images[images.size() - 6] ^= 1;
  ExpectError(OpenError(images, IdxLabels(4, 4)), absl::StatusCode::kInvalidArgument,
              HasSubstr("/images: at least 1048576 bytes left over after the 36 bytes"));
}

TEST(IdxMnistTest, ReadsTheRealFiles) {
  const char* const from_env = std::getenv("PUSHPULL_DATA_DIR");
  const std::string folder = absl::StrCat(
      from_env != nullptr ? from_env : PUSHPULL_SOURCE_DIR "/../shared/data", "/mnist/");
  if (!std::filesystem::exists(folder + "t10k-images-idx3-ubyte.gz")) {
    GTEST_SKIP() << "no MNIST files in " << folder << " (PUSHPULL_DATA_DIR names the folder above)";
  }
  auto source = IdxSource::Open(folder + "t10k-images-idx3-ubyte.gz",
                                folder + "t10k-labels-idx1-ubyte.gz", 10);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), 10000);
  std::vector<int> counts(10);
  double sum = 0;
  Example example;
  for (int64_t i = 0; i < 10000; ++i) {
    ASSERT_TRUE((*source)->Get(i, &example).ok());
    ++counts[example.label];
    for (const uint8_t pixel : example.image.pixels) sum += pixel;
  }
  EXPECT_EQ(counts, (std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  EXPECT_NEAR(sum / (10000.0 * 784 * 255), 0.1325, 0.0005);
}

}  // namespace
}  // namespace pushpull
