#include "worker/data/file_glob.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/ordinary_user.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FileGlobTest, AFolderThatCannotBeReadIsAnErrorAndNotLeftOut) {
  namespace fs = std::filesystem;
  const TestFolder folder;
  fs::permissions(folder.path(), fs::perms{0755});
  const std::string good = folder.Write("part-1/a.record", "");
  fs::permissions(folder.path() + "/part-1", fs::perms{0755});
  const std::string pattern = absl::StrCat(folder.path(), "/part-*/*.record");
  fs::create_symlink("nowhere", folder.path() + "/part-0");
  EXPECT_THAT(*MatchGlob(pattern), ElementsAre(good)) << "a link that leads nowhere";

  const std::string bad = folder.path() + "/part-2";
  fs::create_directory(bad);
  fs::permissions(bad, fs::perms::none);
  {
    const OrdinaryUser user;
    const absl::Status status = MatchGlob(pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), bad + ": cannot be read: Permission denied");
    EXPECT_THAT(*MatchGlob(folder.path() + "/part-1/*"), ElementsAre(good)) << "no error is kept";
  }
  fs::remove(bad);
  EXPECT_THAT(*MatchGlob(pattern), ElementsAre(good));
}

TEST(FileGlobTest, APathThatCannotBeLookedAtIsNotAbsent) {
  const TestFolder folder;
  const std::string file = folder.Write("a", "");
  EXPECT_EQ(*KindOfPath(file), PathKind::kFile);
  EXPECT_EQ(*KindOfPath(folder.path()), PathKind::kFolder);
  EXPECT_EQ(*KindOfPath(folder.path() + "/none"), PathKind::kAbsent);
  EXPECT_EQ(*KindOfPath(file + "/none"), PathKind::kAbsent);
  EXPECT_EQ(*KindOfPath(folder.path() + "/" + std::string(300, '?')), PathKind::kAbsent);
  const std::string loop = folder.path() + "/loop";
  std::filesystem::create_symlink("loop", loop);
  const absl::Status status = KindOfPath(loop).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(loop + ": cannot be read"));
}

}  // namespace
}  // namespace pushpull
