#include "ps_server/monitoring/history.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

HistoryPoint At(uint64_t step, double loss) {
  return {step, 1000.0 + static_cast<double>(step), loss, 0.1 * static_cast<double>(step),
          loss * 2};
}

TEST(HistoryTest, KeepsPointsWhileThereIsRoom) {
  History history(4);
  EXPECT_TRUE(history.Points().empty());
  for (uint64_t step = 1; step <= 4; ++step) history.Add(At(step, 10.0 * step));
  const auto points = history.Points();
  ASSERT_EQ(points.size(), 4);
  EXPECT_EQ(points[3].step, 4);
  EXPECT_EQ(points[3].loss, 40.0);
}

TEST(HistoryTest, MergesNeighboursWhenFull) {
  History history(4);
  for (uint64_t step = 1; step <= 5; ++step) history.Add(At(step, 10.0 * step));
  const auto points = history.Points();
  ASSERT_EQ(points.size(), 3);
  EXPECT_EQ(points[0].step, 2);
  EXPECT_EQ(points[0].loss, 15.0) << "the mean of the two merged points";
  EXPECT_EQ(points[0].images_per_second, 30.0);
  EXPECT_DOUBLE_EQ(points[0].learning_rate, 0.2) << "the rate of the later point";
  EXPECT_EQ(points[0].unix_seconds, 1002.0);
  EXPECT_EQ(points[2].step, 5) << "the newest point covers only one sample so far";
  EXPECT_EQ(points[2].loss, 50.0);
  history.Add(At(6, 60.0));
  ASSERT_EQ(history.Points().size(), 3);
  EXPECT_EQ(history.Points()[2].loss, 55.0) << "a later point covers two samples as well";
}

TEST(HistoryTest, BoundsItsMemoryAndKeepsTheMean) {
  History history(512);
  constexpr uint64_t kLooks = 200000;
  double sum = 0.0;
  for (uint64_t step = 1; step <= kLooks; ++step) {
    history.Add(At(step, static_cast<double>(step % 7)));
    sum += static_cast<double>(step % 7);
    if (step % 1000 == 0) {
      ASSERT_LE(history.Points().size(), 512);
    }
  }
  const auto points = history.Points();
  EXPECT_GE(points.size(), 256);
  EXPECT_EQ(points.back().step, kLooks);
  double mean = 0.0;
  for (size_t i = 1; i < points.size(); ++i) {
    ASSERT_GT(points[i].step, points[i - 1].step);
  }
  for (const HistoryPoint& point : points) mean += point.loss / static_cast<double>(points.size());
  EXPECT_NEAR(mean, sum / kLooks, 0.05);
}

TEST(HistoryTest, ARollbackRemovesLaterPoints) {
  History history(8);
  for (uint64_t step = 1; step <= 6; ++step) history.Add(At(step, 1.0));
  history.Add(At(3, 9.0));
  const auto points = history.Points();
  ASSERT_EQ(points.size(), 3);
  EXPECT_EQ(points[1].step, 2);
  EXPECT_EQ(points[2].step, 3);
  EXPECT_EQ(points[2].loss, 9.0);
}

}  // namespace
}  // namespace pushpull
