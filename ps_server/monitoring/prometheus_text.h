// PrometheusText writes the Prometheus text exposition format, version 0.0.4.
#ifndef PUSHPULL_PS_SERVER_MONITORING_PROMETHEUS_TEXT_H_
#define PUSHPULL_PS_SERVER_MONITORING_PROMETHEUS_TEXT_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "ps_server/monitoring/latency_histogram.h"

namespace pushpull {

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricType { kCounter, kGauge, kHistogram };

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Not thread-safe. Each family has a name of its own, and its samples follow its header. Metric
// and label names must be valid, which is checked with CHECK. Label values may hold any bytes;
// invalid UTF-8 becomes U+FFFD.
class PrometheusText {
 public:
  // Begins a family, to which samples belong until the next call. A family without samples
  // still tells readers that the metric exists. help: one sentence.
  void Family(absl::string_view name, MetricType type, absl::string_view help);
  void Sample(const MetricLabels& labels, double value);
  void Sample(double value) { Sample({}, value); }
  void Histogram(const MetricLabels& labels, const HistogramValues& values);
  // Gauge and Counter write a family with one sample.
  void Gauge(absl::string_view name, absl::string_view help, double value);
  void Counter(absl::string_view name, absl::string_view help, double value);

  std::string Take() { return std::move(text_); }

 private:
  void Line(absl::string_view suffix, const MetricLabels& labels, double value);

  std::string text_;
  std::string name_;
  MetricType type_ = MetricType::kGauge;
  std::set<std::string> names_;
};

// Formats a value as Go does: the fewest digits that parse to the same value; +Inf, -Inf, NaN.
std::string FormatMetricValue(double value);

// Returns `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_PROMETHEUS_TEXT_H_
