#include "ps_server/core/replica_positions.h"

#include "gtest/gtest.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {
namespace {

TEST(ReplicaPositionsTest, PositionsAreRestoredAsTheyWereStored) {
  ReplicaPositions positions;
  EXPECT_EQ(positions.Next(2, 3), 0u);
  positions.SetDone(2, 0);
  positions.SetDone(2, 1);
  positions.SetDone(0, 6);
  ReplicaPositions restored;
  restored.SetDone(1, 9);
  EXPECT_TRUE(restored.Restore(positions.Serialize(3), 3));
  EXPECT_EQ(restored.num_restored(), 3u);
  EXPECT_EQ(restored.Next(0, 3), 7u);
  EXPECT_EQ(restored.Next(1, 3), 0u);
  EXPECT_EQ(restored.Next(2, 3), 2u);
}

TEST(ReplicaPositionsTest, InitialVariablesHaveNoPositions) {
  ReplicaPositions positions;
  positions.SetDone(0, 5);
  EXPECT_TRUE(positions.Restore("", 0));
  EXPECT_EQ(positions.num_restored(), 0u);
  EXPECT_EQ(positions.Next(0, 2), 0u);
}

TEST(ReplicaPositionsTest, MarksWithoutPositionsMeanEqualSharesOfTheVersion) {
  ps::PushMarks old;
  old.add_marks()->set_replica(1);
  for (const std::string& marks : {old.SerializeAsString(), std::string(), std::string("\xff")}) {
    ReplicaPositions positions;
    EXPECT_FALSE(positions.Restore(marks, 11));
    EXPECT_EQ(positions.Next(0, 0), 0u) << "the number of replicas is not known yet";
    EXPECT_EQ(positions.Next(0, 2), 5u);
    EXPECT_EQ(positions.Next(1, 2), 5u);
    positions.SetDone(1, 5);
    // The next version also stores the share of replica 0.
    ReplicaPositions restored;
    EXPECT_TRUE(restored.Restore(positions.Serialize(2), 12));
    EXPECT_EQ(restored.Next(0, 2), 5u);
    EXPECT_EQ(restored.Next(1, 2), 6u);
  }
}

}  // namespace
}  // namespace pushpull
