#include "ps_server/runtime/call_table.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(CallTableTest, ACallEndsOnceByItsAnswerOrItsDeadline) {
  CallTable<int> calls;
  int answers = 0;
  const auto done = [&answers](const absl::StatusOr<int>& reply) { answers += reply.value_or(0); };
  calls.Add(1, done, absl::Seconds(10));
  calls.Add(2, done, absl::Seconds(20));
  calls.Add(3, done);
  calls.Take(1)(1);
  EXPECT_FALSE(calls.Take(1)) << "the call has already been answered";
  EXPECT_TRUE(calls.TakeDue(absl::Seconds(19)).empty()) << "an answered call has no deadline";
  auto due = calls.TakeDue(absl::Seconds(20));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].first, 2u);
  due[0].second(10);
  EXPECT_FALSE(calls.Take(2));
  EXPECT_TRUE(calls.TakeDue(absl::Hours(10000)).empty());
  calls.Take(3)(100);
  EXPECT_EQ(answers, 111);
}

}  // namespace
}  // namespace pushpull
