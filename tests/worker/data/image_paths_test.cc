#include "worker/data/image_paths.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImagePathsTest : public testing::Test {
 protected:
  ImagePathsTest() {
    for (const char* name : {"photos/b.png", "photos/c.JPEG", "photos/a.pgm", "photos/a.jpg",
                             "photos/notes.txt", "photos/.hidden.png", "photos/more/d.png",
                             "odd[1].png", "scan.dat", "texts/readme.txt"}) {
      folder_.Write(name, "");
    }
    folder_.MakeFolder("photos/folder.png");
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_.path(), "/", name);
  }
  absl::StatusOr<std::vector<std::string>> Expand(const std::vector<std::string>& names) const {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(Path(name));
    return ExpandImagePaths(paths);
  }

  TestFolder folder_;
};

TEST_F(ImagePathsTest, AFolderMeansItsImagesSortedByName) {
  const auto images = Expand({"photos"});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_THAT(*images, ElementsAre(Path("photos/a.jpg"), Path("photos/a.pgm"), Path("photos/b.png"),
                                   Path("photos/c.JPEG")));
}

TEST_F(ImagePathsTest, AGlobMeansTheImagesThatMatch) {
  const auto images = Expand({"photos/[ab]*"});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_THAT(*images,
              ElementsAre(Path("photos/a.jpg"), Path("photos/a.pgm"), Path("photos/b.png")));
  const auto below = Expand({"*/*.png"});
  ASSERT_TRUE(below.ok()) << below.status();
  EXPECT_THAT(*below, ElementsAre(Path("photos/b.png")));
}

TEST_F(ImagePathsTest, AFileMayHaveAnyNameAndThePathsKeepTheirOrder) {
  const auto images = Expand({"scan.dat", "photos/more", "odd[1].png"});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_THAT(*images,
              ElementsAre(Path("scan.dat"), Path("photos/more/d.png"), Path("odd[1].png")));
}

TEST_F(ImagePathsTest, NamesWhatHasNoImage) {
  for (const char* name : {"texts", "texts/*", "photos/*.txt"}) {
    const absl::Status status = Expand({"scan.dat", name}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(Path(name), ": no image;")));
  }
  EXPECT_THAT(std::string(Expand({"photos/*.gif"}).status().message()),
              HasSubstr("no file matches " + Path("photos/*.gif")));
  const absl::Status absent = Expand({"absent.png"}).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr(Path("absent.png") + ": no such file"));
}

TEST(HasImageExtensionTest, LooksAtTheEndOfTheNameInAnyCase) {
  for (const char* name : {"a.png", "a.JPG", "a.b.Jpeg", "/x/a.pgm"}) {
    EXPECT_TRUE(HasImageExtension(name)) << name;
  }
  for (const char* name : {"png", "a.png.txt", "a.gif", "", "a.ppm"}) {
    EXPECT_FALSE(HasImageExtension(name)) << name;
  }
}

}  // namespace
}  // namespace pushpull
