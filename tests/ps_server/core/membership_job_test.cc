// Clones that began when the server had other settings.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/membership.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class MembershipJobTest : public PartTest {
 protected:
  MembershipJobTest() { options_.fingerprint = "of this server"; }

  absl::Status Announce(const std::string& fingerprint, const std::string& layout) {
    ps::RegisterRequest request;
    request.set_num_replicas(2);
    request.set_peer_name("host:7");
    request.set_layout_signature(layout);
    request.set_protocol_version(kProtocolVersion);
    request.set_job_fingerprint(fingerprint);
    return members_.CheckAnnouncement(request);
  }

  Membership members_{options_, job_, &actions_};
};

TEST_F(MembershipJobTest, AProcessThatBeganWithOtherSettingsIsToldToStartAgain) {
  EXPECT_EQ(Announce("of this server", "layout"), absl::OkStatus());
  EXPECT_EQ(Announce("", "layout"), absl::OkStatus()) << "a clone that does not say";
  // A restart helps even if the model has changed as well, so that is not what the error says.
  for (const char* layout : {"layout", "another layout"}) {
    const absl::Status refused = Announce("of an earlier server", layout);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_EQ(GetErrorDetail(refused).kind(), ps::ErrorDetail::JOB_CHANGED) << refused;
    EXPECT_TRUE(GetErrorDetail(refused).may_pass());
    EXPECT_TRUE(IsPassing(refused));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("clone 0 (host:7) began with other settings"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("Start the clone's program again"));
  }
}

}  // namespace
}  // namespace pushpull
