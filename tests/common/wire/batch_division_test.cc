#include "common/wire/batch_division.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

int64_t Sum(const std::vector<int64_t>& samples) {
  return std::accumulate(samples.begin(), samples.end(), static_cast<int64_t>(0));
}

// The parts of a division cover the batch without gaps, and none is empty.
void ExpectDivides(const std::vector<int64_t>& samples, int64_t batch_size) {
  EXPECT_EQ(Sum(samples), batch_size);
  int64_t next = 0;
  for (int i = 0; i < static_cast<int>(samples.size()); ++i) {
    const BatchPart part = PartOf(samples, i);
    EXPECT_EQ(part.first, next);
    EXPECT_GE(part.samples, 1);
    next = part.first + part.samples;
  }
  EXPECT_EQ(next, batch_size);
}

TEST(BatchDivision, EqualSharesDifferByOneSample) {
  EXPECT_THAT(DivideEqually(15, 2), ElementsAre(7, 8));
  EXPECT_THAT(DivideEqually(31, 3), ElementsAre(10, 10, 11));
  EXPECT_THAT(DivideEqually(4, 4), ElementsAre(1, 1, 1, 1));
  for (int64_t batch = 1; batch <= 70; ++batch) {
    for (int n = 1; n <= batch; ++n) {
      const std::vector<int64_t> samples = DivideEqually(batch, n);
      ExpectDivides(samples, batch);
      EXPECT_LE(samples.back() - samples.front(), 1);
    }
  }
}

TEST(BatchDivision, SharesFollowSpeed) {
  EXPECT_THAT(DivideBySpeed(65, {4.0, 4.0, 1.0, 4.0}), ElementsAre(20, 20, 5, 20));
  EXPECT_THAT(DivideBySpeed(10, {1000.0, 1.0}), ElementsAre(9, 1)) << "nobody is left out";
  EXPECT_THAT(DivideBySpeed(7, {2.5}), ElementsAre(7));
  EXPECT_THAT(DivideBySpeed(3, {1e9, 1e-9, 1.0}), ElementsAre(1, 1, 1));
}

// Tries all divisions of small batches.
double LeastTime(int64_t batch, const std::vector<double>& speeds, size_t replica, double slowest) {
  if (replica + 1 == speeds.size()) {
    return std::max(slowest, static_cast<double>(batch) / speeds[replica]);
  }
  double least = 1e300;
  const int64_t others = static_cast<int64_t>(speeds.size() - replica) - 1;
  for (int64_t n = 1; n <= batch - others; ++n) {
    const double time = std::max(slowest, static_cast<double>(n) / speeds[replica]);
    least = std::min(least, LeastTime(batch - n, speeds, replica + 1, time));
  }
  return least;
}

TEST(BatchDivision, NoDivisionIsFasterThanThatBySpeed) {
  CounterRandom random(1, 0);
  for (int i = 0; i < 2000; ++i) {
    const int n = 1 + static_cast<int>(random.NextUint64() % 4);
    const int64_t batch = n + static_cast<int64_t>(random.NextUint64() % 24);
    std::vector<double> speeds(n);
    for (double& speed : speeds) speed = 0.01 + 10.0 * random.NextFloat() * random.NextFloat();
    const std::vector<int64_t> samples = DivideBySpeed(batch, speeds);
    ExpectDivides(samples, batch);
    EXPECT_DOUBLE_EQ(SlowestSeconds(samples, speeds), LeastTime(batch, speeds, 0, 0.0));
    EXPECT_EQ(samples, DivideBySpeed(batch, speeds));
  }
}

TEST(BatchDivision, ManyReplicasAndLargeBatches) {
  CounterRandom random(2, 0);
  std::vector<double> speeds(256);
  for (double& speed : speeds) speed = 1.0 + 99.0 * random.NextFloat();
  for (const int64_t batch : {256, 257, 4096, 1 << 20}) {
    ExpectDivides(DivideBySpeed(batch, speeds), batch);
  }
}

}  // namespace
}  // namespace pushpull
