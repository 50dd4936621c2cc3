// Clones without a replica of their own: anybody can come as one, so there is an end to them.
#include <string>

#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

class CoordinatorSparesTest : public CoordinatorTest {};

TEST_F(CoordinatorSparesTest, SoManyAndNoMore) {
  StartWithClones();
  for (uint32_t i = 0; i < ReplicaTable::kMaxSpares; ++i) EXPECT_TRUE(Register(1000 + i * 7).ok());
  EXPECT_EQ(Register(999999).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Register(1000).ok()) << "it is known";
  EXPECT_TRUE(Register(2).ok()) << "it has a replica";
  EXPECT_EQ(coordinator_->Status(now_).clones_size(),
            3 + static_cast<int>(ReplicaTable::kMaxSpares));
}

TEST_F(CoordinatorSparesTest, LostOnesMakeRoom) {
  StartWithClones();
  for (uint32_t i = 0; i < ReplicaTable::kMaxSpares; ++i) EXPECT_TRUE(Register(1000 + i).ok());
  for (int i = 0; i < 3; ++i) {
    Pass(options_.lease / 2);
    for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  for (uint32_t i = 0; i < 2 * ReplicaTable::kMaxSpares; ++i) {
    EXPECT_EQ(Register(5000 + i).ok(), i < ReplicaTable::kMaxSpares) << i;
  }
  EXPECT_EQ(coordinator_->Status(now_).clones_size(),
            3 + static_cast<int>(ReplicaTable::kMaxSpares));
  RunStep(1);
}

TEST_F(CoordinatorSparesTest, TheirNoticesCanBeToldFromOthers) {
  StartWithClones();
  Take<coordinator_action::Notice>();
  EXPECT_TRUE(Register(1000).ok());
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 1);
  EXPECT_TRUE(notices[0].about_spare);
}

// Who does not know a clone's secret is not that clone, whatever it calls itself.
TEST_F(CoordinatorSparesTest, SessionsTellClonesFromThoseThatPoseAsThem) {
  Start();
  ps::RegisterRequest request = RegisterRequest(1, "host:1");
  request.set_session(42);
  EXPECT_TRUE(Register(request).ok());
  request.set_session(43);
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(KindOf(Heartbeat(request).status()), ps::ErrorDetail::EPOCH_CHANGED);
  Pass(options_.lease);
  EXPECT_TRUE(Register(request).ok()) << "the lease of the first one has ended";
}

}  // namespace
}  // namespace pushpull
