#include "common/base/passing_error.h"

#include <errno.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(PassingErrorTest, OnlyAMarkedErrorIsPassing) {
  const absl::Status full = absl::ResourceExhaustedError("no space left");
  EXPECT_FALSE(IsPassing(full));
  const absl::Status marked = MarkPassing(full);
  EXPECT_TRUE(IsPassing(marked));
  EXPECT_TRUE(absl::IsResourceExhausted(marked));
  EXPECT_EQ(marked.message(), full.message());
  EXPECT_EQ(MarkPassing(absl::OkStatus()), absl::OkStatus());
  EXPECT_FALSE(IsPassing(absl::OkStatus()));
}

TEST(PassingErrorTest, AnnotatedKeepsTheCodeAndAllPayloads) {
  absl::Status from = MarkPassing(absl::InternalError("input/output error"));
  from.SetPayload("other", absl::Cord("value"));
  const absl::Status once = Annotated(from, "epoch 3 could not begin");
  const absl::Status twice = Annotated(once, "again");
  EXPECT_TRUE(absl::IsInternal(twice));
  EXPECT_EQ(twice.message(), "again");
  EXPECT_TRUE(IsPassing(twice));
  EXPECT_EQ(twice.GetPayload("other"), absl::Cord("value"));
  EXPECT_FALSE(IsPassing(Annotated(absl::InternalError("a bug"), "more")));
  EXPECT_EQ(Annotated(absl::OkStatus(), "more"), absl::OkStatus());
}

TEST(PassingErrorTest, AFullOrBrokenDiskMayPassAndAWrongPathMayNot) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EROFS, ENFILE, ENOMEM, EAGAIN, ESTALE}) {
    EXPECT_TRUE(IsPassingErrno(error)) << error;
  }
  for (const int error : {0, EACCES, EPERM, EFBIG, ENOENT, EINVAL, ENAMETOOLONG, EISDIR, EMFILE}) {
    EXPECT_FALSE(IsPassingErrno(error)) << error;
  }
}

}  // namespace
}  // namespace pushpull
