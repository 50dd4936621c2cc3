#include "ps_server/runtime/request_limits.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(RequestLimitsTest, RefusesTextsThatWouldForgeALogLine) {
  for (const std::string good : {"", "host:17", "Zürich → 0", "\xc3\x9f\xe2\x82\xac"}) {
    EXPECT_TRUE(CheckText("peer_name", good, 256).ok()) << good;
  }
  for (const std::string& bad : {std::string("a\nERROR all is lost"), std::string("\x1b[2J"),
                                 std::string("a\0b", 3), std::string("x\x7f"), std::string("\r"),
                                 std::string("tab\t"), std::string("c1 \xc2\x9b")}) {
    const absl::Status status = CheckText("peer_name", bad, 256);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_TRUE(absl::StrContains(status.message(), "peer_name")) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), bad))
        << "the error must not quote the text either";
  }
  EXPECT_TRUE(CheckText("peer_name", std::string(256, 'x'), 256).ok());
  EXPECT_FALSE(CheckText("peer_name", std::string(257, 'x'), 256).ok());
}

TEST(RequestLimitsTest, LimitsTheWaitOfAPull) {
  ps::PullRequest pull;
  pull.set_wait_milliseconds(500);
  EXPECT_EQ(LongestWait(pull), absl::Milliseconds(500));
  for (const uint32_t wait : {0u, ~0u}) {
    pull.set_wait_milliseconds(wait);
    EXPECT_EQ(LongestWait(pull), absl::Minutes(15)) << wait;
  }
}

TEST(RequestLimitsTest, ChecksEveryTextOfARequest) {
  ps::RegisterRequest announced;
  EXPECT_TRUE(CheckRequestLimits(announced).ok());
  announced.set_peer_name("a\n");
  EXPECT_FALSE(CheckRequestLimits(announced).ok());

  announced.set_peer_name("a");
  announced.mutable_arithmetic()->set_device("the CPU\n");
  EXPECT_FALSE(CheckRequestLimits(announced).ok());
  announced.mutable_arithmetic()->set_device("the CPU");
  EXPECT_TRUE(CheckRequestLimits(announced).ok());
  announced.mutable_arithmetic()->set_rounding(std::string(1000, 'x'));
  EXPECT_FALSE(CheckRequestLimits(announced).ok());

  ps::HeartbeatRequest heartbeat;
  heartbeat.mutable_progress()->set_phase("compute");
  EXPECT_TRUE(CheckRequestLimits(heartbeat).ok());
  heartbeat.mutable_progress()->set_phase(std::string(33, 'x'));
  EXPECT_FALSE(CheckRequestLimits(heartbeat).ok());
  heartbeat.mutable_progress()->set_phase("wait");
  heartbeat.mutable_progress()->mutable_gpu()->set_name(std::string(1000, 'x'));
  EXPECT_FALSE(CheckRequestLimits(heartbeat).ok());

  ps::CommitRequest commit;
  for (int i = 0; i < kMaxMetrics; ++i) commit.mutable_info()->add_metrics()->set_name("Loss/a");
  EXPECT_TRUE(CheckRequestLimits(commit).ok());
  commit.mutable_info()->add_metrics();
  EXPECT_FALSE(CheckRequestLimits(commit).ok());
  commit.mutable_info()->clear_metrics();
  commit.mutable_info()->add_metrics()->set_name("Loss\n");
  EXPECT_FALSE(CheckRequestLimits(commit).ok());
  commit.mutable_info()->clear_metrics();
  commit.mutable_info()->set_non_finite_variable(std::string(kMaxVariableNameBytes + 1, 'x'));
  EXPECT_FALSE(CheckRequestLimits(commit).ok());
}

}  // namespace
}  // namespace pushpull
