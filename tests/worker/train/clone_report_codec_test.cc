#include "worker/train/clone_report_codec.h"

#include <limits.h>

#include <string>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

CloneReport SampleReport() {
  CloneReport report;
  report.step = 1200;
  report.num_steps = 20000;
  report.loss = 1.25;
  report.accuracy = 0.5;
  report.learning_rate = 0.004;
  report.images_per_second = 182.5;
  report.images = 5000000000;
  report.staleness = 3;
  report.waiting_for = "clone 2 of 3 (never seen)";
  report.gpu = "GPU-5a3c";
  return report;
}

TEST(CloneReportCodecTest, RoundTrips) {
  std::string line = EncodeCloneReport(SampleReport());
  ASSERT_EQ(line.back(), '\n');
  line.pop_back();
  const auto report = DecodeCloneReport(line);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step, 1200);
  EXPECT_EQ(report->num_steps, 20000);
  EXPECT_EQ(report->loss, 1.25);
  EXPECT_EQ(report->accuracy, 0.5);
  EXPECT_EQ(report->learning_rate, 0.004);
  EXPECT_EQ(report->images_per_second, 182.5);
  EXPECT_EQ(report->images, 5000000000);
  EXPECT_EQ(report->staleness, 3);
  EXPECT_EQ(report->waiting_for, "clone 2 of 3 (never seen)");
  EXPECT_EQ(report->gpu, "GPU-5a3c");
}

TEST(CloneReportCodecTest, ACloneOnTheCpuHasNoGpu) {
  CloneReport report = SampleReport();
  report.gpu.clear();
  std::string line = EncodeCloneReport(report);
  line.pop_back();
  const auto decoded = DecodeCloneReport(line);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->gpu, "");
  EXPECT_EQ(decoded->waiting_for, report.waiting_for);
}

TEST(CloneReportCodecTest, IsAlwaysASingleAtomicLine) {
  CloneReport report = SampleReport();
  report.waiting_for = "a\nb" + std::string(10000, 'x');
  const std::string line = EncodeCloneReport(report);
  EXPECT_LT(line.size(), PIPE_BUF);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  report.waiting_for.clear();
  EXPECT_TRUE(DecodeCloneReport(EncodeCloneReport(report)).has_value());
}

TEST(CloneReportCodecTest, RefusesGarbage) {
  for (const char* line : {"", " ", "hello", "1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 8 -",
                           "x 2 3 4 5 6 7 8 - w", "-1 2 3 4 5 6 7 8 - w", "1 2 3 4 5 6 x 8 - w",
                           "1 2 3 4 5 6 7 x - w", "1 2 loss 4 5 6 7 8 - w"}) {
    EXPECT_FALSE(DecodeCloneReport(line).has_value()) << line;
  }
}

}  // namespace
}  // namespace pushpull
