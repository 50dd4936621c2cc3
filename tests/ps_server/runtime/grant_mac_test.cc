#include "ps_server/runtime/grant_mac.h"

#include "gtest/gtest.h"

#include "common/base/hmac.h"
#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

TEST(GrantMacTest, HoldsForOneWorkerReplicaAndGrant) {
  const GrantMac coordinator(NewHmacKey());
  GrantMac shard;
  ps::ReplicaGrant grant;
  grant.set_replica(3);
  grant.set_grant((uint64_t{7} << 32) | 5);
  coordinator.Sign(2, &grant);
  EXPECT_FALSE(shard.Check(2, 3, grant.grant(), grant.mac()).ok()) << "the shard has no key yet";
  shard.SetKey(coordinator.key());
  EXPECT_TRUE(shard.Check(2, 3, grant.grant(), grant.mac()).ok());
  EXPECT_FALSE(shard.Check(1, 3, grant.grant(), grant.mac()).ok());
  EXPECT_FALSE(shard.Check(2, 4, grant.grant(), grant.mac()).ok());
  EXPECT_FALSE(shard.Check(2, 3, grant.grant() + 1, grant.mac()).ok());
  const absl::Status status = shard.Check(2, 3, grant.grant(), grant.mac() ^ 1);
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::FENCED);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  shard.SetKey(NewHmacKey());
  EXPECT_FALSE(shard.Check(2, 3, grant.grant(), grant.mac()).ok())
      << "the MAC is of another coordinator";
}

}  // namespace
}  // namespace pushpull
