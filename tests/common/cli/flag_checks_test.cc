#include "common/cli/flag_checks.h"

#include <cstdint>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/cli/exit_codes.h"

ABSL_FLAG(int, test_shards, 1, "a number");
ABSL_FLAG(bool, test_bad, false, "a switch");

namespace pushpull {
namespace {

TEST(FlagChecksTest, ValuesBelowTheLeastAreBadFlags) {
  EXPECT_EQ(CheckAtLeast("threads", 0, 0), absl::OkStatus());
  EXPECT_EQ(CheckAtLeast("threads", std::numeric_limits<int64_t>::max(), 0), absl::OkStatus());
  const absl::Status below = CheckAtLeast("max_boxes", 0, 1);
  EXPECT_EQ(below.message(), "--max_boxes=0, expected at least 1");
  EXPECT_EQ(ExitCodeOf(below), kExitUsage);
}

TEST(FlagChecksTest, DurationsBelowTheLeastAreBadFlags) {
  const absl::Duration least = absl::Milliseconds(100);
  EXPECT_EQ(CheckAtLeast("lease", least, least), absl::OkStatus());
  EXPECT_EQ(CheckAtLeast("lease", absl::InfiniteDuration(), least), absl::OkStatus());
  for (const absl::Duration value :
       {least - absl::Nanoseconds(1), absl::Seconds(-1), -absl::InfiniteDuration()}) {
    EXPECT_EQ(ExitCodeOf(CheckAtLeast("lease", value, least)), kExitUsage) << value;
  }
  EXPECT_EQ(CheckAtLeast("lease", absl::ZeroDuration(), least).message(),
            "--lease=0, expected at least 100ms");
}

TEST(FlagChecksTest, PortsAreThoseOfTcp) {
  for (const int port : {0, 1, 65535}) EXPECT_EQ(CheckPort("health_port", port), absl::OkStatus());
  for (const int port : {-1, 65536}) {
    EXPECT_EQ(ExitCodeOf(CheckPort("health_port", port)), kExitUsage) << port;
  }
  EXPECT_EQ(CheckPort("health_port", -1).message(), "--health_port=-1, expected 0 to 65535");
}

TEST(FlagChecksTest, FlagsWithoutAnEffectKeepTheirDefaults) {
  EXPECT_EQ(CheckNotSet({"test_shards", "test_bad"}, "--check"), absl::OkStatus());
  absl::SetFlag(&FLAGS_test_bad, true);
  EXPECT_EQ(ExitCodeOf(CheckNotSet({"test_bad"}, "--check")), kExitUsage);
  EXPECT_EQ(CheckNotSet({"test_shards", "test_bad"}, "--check").message(),
            "--test_bad has no effect with --check: leave it out");
  absl::SetFlag(&FLAGS_test_shards, 2);
  EXPECT_EQ(CheckNotSet({"test_shards", "test_bad"}, "--check").message(),
            "--test_shards, --test_bad have no effect with --check: leave them out");
}

}  // namespace
}  // namespace pushpull
