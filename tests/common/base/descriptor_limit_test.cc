#include "common/base/descriptor_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DescriptorLimitTest, RaisesTheSoftLimitToTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int64_t most = static_cast<int64_t>(std::min(before.rlim_max, rlim_t{1} << 30));
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(RaiseDescriptorLimit(), most);
    rlimit raised{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
    EXPECT_EQ(raised.rlim_cur, before.rlim_max);
    EXPECT_EQ(raised.rlim_max, before.rlim_max);
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(DescriptorLimitTest, CheckFreeDescriptorsCountsWhatIsLeft) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int first_free = open("/dev/null", O_RDONLY);
  ASSERT_GE(first_free, 0);
  close(first_free);
  rlimit low = before;
  low.rlim_cur = first_free + 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(CheckFreeDescriptors(0), absl::OkStatus());
  const absl::Status refused = CheckFreeDescriptors(4);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(absl::StrCat("may have ", low.rlim_cur, " files open")),
                    HasSubstr("4 are needed"), HasSubstr("ulimit -n")));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(CheckFreeDescriptors(4), absl::OkStatus());
}

}  // namespace
}  // namespace pushpull
