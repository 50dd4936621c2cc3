#include "ps_server/monitoring/prometheus_text.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(PrometheusTextTest, WritesFamiliesWithTheirHeaders) {
  PrometheusText text;
  text.Gauge("ps_a", "First.", 2.5);
  text.Family("ps_b_total", MetricType::kCounter, "A \\ and\na line.");
  text.Sample({{"code", "OK"}, {"shard", "0"}}, 12);
  text.Sample({{"code", "ABORTED"}, {"shard", "0"}}, 0);
  text.Family("ps_c", MetricType::kGauge, "Not known.");
  EXPECT_EQ(text.Take(),
            "# HELP ps_a First.\n# TYPE ps_a gauge\nps_a 2.5\n"
            "# HELP ps_b_total A \\\\ and\\na line.\n# TYPE ps_b_total counter\n"
            "ps_b_total{code=\"OK\",shard=\"0\"} 12\nps_b_total{code=\"ABORTED\",shard=\"0\"} 0\n"
            "# HELP ps_c Not known.\n# TYPE ps_c gauge\n");
}

TEST(PrometheusTextTest, HistogramBucketsAreCumulative) {
  PrometheusText text;
  text.Family("ps_h", MetricType::kHistogram, "H.");
  text.Histogram({{"shard", "1"}}, {{0.5, 1.0}, {2, 0, 3}, 7.25});
  EXPECT_EQ(text.Take(),
            "# HELP ps_h H.\n# TYPE ps_h histogram\n"
            "ps_h_bucket{shard=\"1\",le=\"0.5\"} 2\nps_h_bucket{shard=\"1\",le=\"1\"} 2\n"
            "ps_h_bucket{shard=\"1\",le=\"+Inf\"} 5\nps_h_sum{shard=\"1\"} 7.25\n"
            "ps_h_count{shard=\"1\"} 5\n");
}

TEST(PrometheusTextTest, EscapesLabelValues) {
  PrometheusText text;
  text.Family("ps_info", MetricType::kGauge, "I.");
  text.Sample({{"peer", "a\"b\\c\nd\xff\xc3\xa9"}}, 1);
  EXPECT_EQ(text.Take(),
            "# HELP ps_info I.\n# TYPE ps_info gauge\n"
            "ps_info{peer=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa9\"} 1\n");
}

TEST(PrometheusTextTest, WritesValuesAsGoReadsThem) {
  EXPECT_EQ(FormatMetricValue(0.1), "0.1");
  EXPECT_EQ(FormatMetricValue(1e15 + 1), "1000000000000001");
  EXPECT_EQ(std::stod(FormatMetricValue(1.0 / 3.0)), 1.0 / 3.0);
  EXPECT_EQ(FormatMetricValue(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(FormatMetricValue(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_EQ(FormatMetricValue(std::nan("")), "NaN");
}

TEST(PrometheusTextTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(ValidUtf8("a\xe2\x82\xac\xf0\x9f\x98\x80z"), "a\xe2\x82\xac\xf0\x9f\x98\x80z");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(ValidUtf8("\x80"), bad);
  EXPECT_EQ(ValidUtf8("\xe2\x82"), bad + bad) << "a truncated character";
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), bad + bad) << "an overlong encoding";
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), bad + bad + bad) << "a surrogate code point";
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), bad + bad + bad + bad) << "a code point above U+10FFFF";
}

TEST(PrometheusTextDeathTest, MisuseEndsTheProcess) {
  PrometheusText text;
  text.Gauge("ps_a", "A.", 1);
  EXPECT_DEATH(text.Gauge("ps_a", "A.", 1), "before");
  EXPECT_DEATH(text.Family("ps_b", MetricType::kCounter, "B."), "ps_b");
  EXPECT_DEATH(text.Family("ps_b_total", MetricType::kGauge, "B."), "ps_b_total");
  EXPECT_DEATH(text.Family("9a", MetricType::kGauge, "B."), "9a");
}

}  // namespace
}  // namespace pushpull
