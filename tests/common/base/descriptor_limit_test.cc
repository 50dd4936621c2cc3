#include "common/base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

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

}  // namespace
}  // namespace pushpull
