#include "worker/data/image_folder_source.h"

#include <sys/stat.h>

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ImageFolderSourceTest, NumbersClassesByValueAndFilesByName) {
  const TestFolder folder;
  const std::string png = EncodePng(MakeImage(4, 5, 3));
  folder.Write("10/a.png", png);
  folder.Write("2/b.PNG", png);
  folder.Write("2/a.jpeg", EncodeJpeg(MakeImage(4, 6, 1)));
  folder.Write("1/z.pgm", EncodePgm(MakeImage(3, 3, 1)));
  folder.Write("1/notes.txt", "x");
  folder.Write("README", "x");
  folder.Write(".hidden/a.png", png);
  auto opened = ImageFolderSource::Open(folder.path(), 3);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const ImageSource& source = **opened;
  EXPECT_THAT(source.class_names(), ElementsAre("1", "2", "10"));
  EXPECT_EQ(source.size(), 4);
  EXPECT_THAT(source.describe(), HasSubstr("4 images, 3 classes, 2 other files ignored"));
  const std::vector<int> labels = {0, 1, 1, 2};
  const std::vector<int> widths = {3, 6, 5, 5};
  Example example;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(source.Get(i, &example).ok());
    EXPECT_EQ(example.label, labels[i]);
    EXPECT_EQ(example.image.width, widths[i]);
  }
  ThreadPool pool(2);
  EXPECT_TRUE(source.Check(&pool, NeverStopped).ok());
}

TEST(ImageFolderSourceTest, SortsNamesBytewiseUnlessAllAreNumbers) {
  const TestFolder folder;
  for (const char* name : {"10/a.pgm", "9/a.pgm", "cat/a.pgm"}) {
    folder.Write(name, EncodePgm(MakeImage(2, 2, 1)));
  }
  auto opened = ImageFolderSource::Open(folder.path(), 3);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(static_cast<const ImageFolderSource&>(**opened).class_names(),
              ElementsAre("10", "9", "cat"));
}

TEST(ImageFolderSourceTest, CheckNamesEveryCorruptImageWithAnyNumberOfThreads) {
  const TestFolder folder;
  const std::string png = EncodePng(MakeImage(8, 8, 3));
  for (int i = 0; i < 200; ++i) folder.Write(absl::StrCat("0/", 1000 + i, ".png"), png);
  folder.Write("0/1007.png", png.substr(0, png.size() / 2));
  std::string flipped = png;
  flipped[png.size() - 20] ^= 1;  // a bit of the pixels
  folder.Write("0/1100.png", flipped);
  folder.Write("0/1150.png", "text");
  std::string first_message;
  for (const int threads : {1, 4}) {
    auto source = ImageFolderSource::Open(folder.path(), 1);
    ASSERT_TRUE(source.ok()) << source.status();
    ThreadPool pool(threads);
    const absl::Status status = (*source)->Check(&pool, NeverStopped);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    const std::string message(status.message());
    EXPECT_THAT(message, AllOf(HasSubstr("3 of 200 images cannot be read"),
                               HasSubstr("/0/1007.png: "), HasSubstr("/0/1100.png: "),
                               HasSubstr("/0/1150.png: "), Not(HasSubstr("more"))));
    if (threads == 1) first_message = message;
    EXPECT_EQ(message, first_message);
    Example example;
    EXPECT_THAT(std::string((*source)->Get(7, &example).message()), HasSubstr("/0/1007.png: "));
  }
}

TEST(ImageFolderSourceTest, CountsManyCorruptImages) {
  const TestFolder folder;
  for (int i = 0; i < 30; ++i) folder.Write(absl::StrCat("0/", 10 + i, ".png"), "x");
  auto source = ImageFolderSource::Open(folder.path(), 1);
  ASSERT_TRUE(source.ok()) << source.status();
  ThreadPool pool(2);
  const std::string message((*source)->Check(&pool, NeverStopped).message());
  EXPECT_THAT(message, AllOf(HasSubstr("30 of 30"), HasSubstr("/19.png"), Not(HasSubstr("/20.png")),
                             HasSubstr("and 20 more")));
}

TEST(ImageFolderSourceTest, ACheckEndsEarlyWhenItIsStopped) {
  const TestFolder folder;
  for (int i = 0; i < 30; ++i) folder.Write(absl::StrCat("0/", 10 + i, ".png"), "x");
  auto source = ImageFolderSource::Open(folder.path(), 1);
  ASSERT_TRUE(source.ok()) << source.status();
  ThreadPool pool(1);
  int asked = 0;
  const absl::Status status = (*source)->Check(&pool, [&asked] { return ++asked > 3; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << "the images are bad, but were not read";
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder.path()));
}

TEST(ImageFolderSourceTest, ARemovedFileIsNotFound) {
  TestFolder folder;
  folder.Write("0/a.png", EncodePng(MakeImage(2, 2, 1)));
  auto source = ImageFolderSource::Open(folder.path(), 1);
  ASSERT_TRUE(source.ok());
  std::remove((folder.path() + "/0/a.png").c_str());
  Example example;
  const absl::Status status = (*source)->Get(0, &example);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/0/a.png"));
}

TEST(ImageFolderSourceTest, APipeIsNamedAndNotWaitedFor) {
  const TestFolder folder;
  folder.Write("0/a.png", EncodePng(MakeImage(2, 2, 1)));
  const std::string pipe = folder.path() + "/0/b.png";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto source = ImageFolderSource::Open(folder.path(), 1);
  ASSERT_TRUE(source.ok()) << source.status();
  Example example;
  EXPECT_EQ(std::string((*source)->Get(1, &example).message()), pipe + " is not a regular file");
}

TEST(ImageFolderSourceTest, AReadErrorMayPass) {
  const TestFolder folder;
  folder.Write("0/a.png", EncodePng(MakeImage(2, 2, 1)));
  std::filesystem::create_symlink(kFileWithIoError, folder.path() + "/0/b.png");
  auto source = ImageFolderSource::Open(folder.path(), 1);
  ASSERT_TRUE(source.ok()) << source.status();
  Example example;
  const absl::Status status = (*source)->Get(1, &example);
  EXPECT_TRUE(IsPassing(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/0/b.png: cannot be read: "));
  ThreadPool pool(2);
  const absl::Status checked = (*source)->Check(&pool, NeverStopped);
  EXPECT_TRUE(IsPassing(checked)) << checked;
}

TEST(ImageFolderSourceTest, RefusesBadFolders) {
  const TestFolder folder;
  const auto open_error = [&](const std::string& name, int num_classes) {
    return ImageFolderSource::Open(absl::StrCat(folder.path(), "/", name), num_classes).status();
  };
  const absl::Status missing = open_error("none", 2);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/none: cannot be read"));

  folder.MakeFolder("empty");
  const absl::Status empty = open_error("empty", 2);
  EXPECT_EQ(empty.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(empty.message()), HasSubstr("/empty: no class folders"));

  folder.Write("texts/a/1.txt", "x");
  folder.Write("texts/b/1.txt", "x");
  EXPECT_THAT(
      std::string(open_error("texts", 2).message()),
      HasSubstr("no image (png, jpg, jpeg, pgm) in the 2 class folders, 2 other files ignored"));
  EXPECT_THAT(std::string(open_error("texts", 3).message()),
              AllOf(HasSubstr("2 class folders (a ... b)"), HasSubstr("num_classes: 3")));
}

}  // namespace
}  // namespace pushpull
