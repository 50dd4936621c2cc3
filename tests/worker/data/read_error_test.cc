#include "worker/data/read_error.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"

namespace pushpull {
namespace {

TEST(ReadErrorTest, NamesThePathAndTheReasonAndMarksWhatMayPass) {
  for (const int error : {EIO, ESTALE, ETIMEDOUT}) {
    const absl::Status status = ReadError("/data/a.png", error);
    EXPECT_TRUE(IsPassing(status)) << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  const absl::Status forbidden = ReadError("/data/a.png", EACCES);
  EXPECT_FALSE(IsPassing(forbidden)) << forbidden;
  EXPECT_EQ(forbidden.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(forbidden.message()), "/data/a.png: cannot be read: Permission denied");
  for (const int error : {ENOENT, ENOTDIR}) {
    const absl::Status missing = ReadError("/data/a.png", error);
    EXPECT_FALSE(IsPassing(missing)) << missing;
    EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  }
}

TEST(OpenToReadTest, RefusesAPipeInsteadOfWaitingForItsWriter) {
  const std::string path = absl::StrCat(testing::TempDir(), "/pipe.", ::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const absl::Status status = OpenToRead(path).status();
  ::unlink(path.c_str());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), path + " is not a regular file");
  EXPECT_EQ(OpenToRead(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(OpenToRead("/proc/self/exe").ok());
}

}  // namespace
}  // namespace pushpull
