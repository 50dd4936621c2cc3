#include "ps_server/service/grant_seals.h"

#include "gtest/gtest.h"

#include "common/error_detail.h"
#include "common/hmac.h"

namespace pushpull {
namespace {

TEST(GrantSealsTest, HoldForOneWorkerSlotAndGrant) {
  const GrantSeals coordinator(NewHmacKey());
  GrantSeals shard;
  ps::SlotGrant grant;
  grant.set_slot(3);
  grant.set_grant((uint64_t{7} << 32) | 5);
  coordinator.Seal(2, &grant);
  EXPECT_FALSE(shard.Check(2, 3, grant.grant(), grant.seal()).ok()) << "no key yet";
  shard.SetKey(coordinator.key());
  EXPECT_TRUE(shard.Check(2, 3, grant.grant(), grant.seal()).ok());
  EXPECT_FALSE(shard.Check(1, 3, grant.grant(), grant.seal()).ok());
  EXPECT_FALSE(shard.Check(2, 4, grant.grant(), grant.seal()).ok());
  EXPECT_FALSE(shard.Check(2, 3, grant.grant() + 1, grant.seal()).ok());
  const absl::Status status = shard.Check(2, 3, grant.grant(), grant.seal() ^ 1);
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::FENCED);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  shard.SetKey(NewHmacKey());
  EXPECT_FALSE(shard.Check(2, 3, grant.grant(), grant.seal()).ok()) << "of another coordinator";
}

}  // namespace
}  // namespace pushpull
