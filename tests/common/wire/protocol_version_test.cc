#include "common/wire/protocol_version.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(ProtocolVersion, SaysWhichProgramMustBeUpgraded) {
  EXPECT_EQ(CheckProtocolVersion("clone 1 (a)", kProtocolVersion), absl::OkStatus());
  EXPECT_EQ(
      CheckProtocolVersion("clone 1 (a)", kProtocolVersion - 1, "the server"),
      absl::FailedPreconditionError(absl::StrCat(
          "clone 1 (a) speaks protocol version ", kProtocolVersion - 1, ", the server speaks ",
          kProtocolVersion, ": upgrade clone 1 (a) to the release of the server")));
  EXPECT_EQ(CheckProtocolVersion("ps task 0 at b:2222", kProtocolVersion + 1),
            absl::FailedPreconditionError(
                absl::StrCat("ps task 0 at b:2222 speaks protocol version ", kProtocolVersion + 1,
                             ", this program speaks ", kProtocolVersion,
                             ": upgrade this program to the release of ps task 0 at b:2222")));
}

}  // namespace
}  // namespace pushpull
