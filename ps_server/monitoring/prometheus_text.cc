#include "ps_server/monitoring/prometheus_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

bool IsName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

absl::string_view TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  LOG(FATAL) << "metric type " << static_cast<int>(type);
}

// Returns the length of the UTF-8 character at the start of `text` (not empty), or 0 if there is
// no valid character. Overlong forms and surrogates are not valid.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t head = byte(0);
  if (head < 0x80) return 1;
  if (head < 0xc2 || head > 0xf4) return 0;
  const size_t length = head < 0xe0 ? 2 : head < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  if ((head == 0xe0 && second < 0xa0) || (head == 0xed && second >= 0xa0) ||
      (head == 0xf0 && second < 0x90) || (head == 0xf4 && second >= 0x90)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = CharacterBytes(text);
    if (length == 0) {
      result += "\xef\xbf\xbd";
      text.remove_prefix(1);
      continue;
    }
    absl::StrAppend(&result, text.substr(0, length));
    text.remove_prefix(length);
  }
  return result;
}

std::string FormatMetricValue(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  return std::string(digits, end.ptr);
}

void PrometheusText::Family(absl::string_view name, MetricType type, absl::string_view help) {
  CHECK(IsName(name)) << name;
  CHECK_EQ(absl::EndsWith(name, "_total"), type == MetricType::kCounter) << name;
  CHECK(names_.insert(std::string(name)).second) << name << " was there before";
  name_ = std::string(name);
  type_ = type;
  absl::StrAppend(&text_, "# HELP ", name, " ",
                  absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}}), "\n# TYPE ", name,
                  " ", TypeName(type), "\n");
}

void PrometheusText::Sample(const MetricLabels& labels, double value) {
  CHECK(type_ != MetricType::kHistogram) << name_;
  Line("", labels, value);
}

void PrometheusText::Histogram(const MetricLabels& labels, const HistogramValues& values) {
  CHECK(type_ == MetricType::kHistogram) << name_;
  CHECK_EQ(values.counts.size(), values.bounds.size() + 1) << name_;
  MetricLabels with_bound = labels;
  with_bound.emplace_back("le", "");
  uint64_t count = 0;
  for (size_t i = 0; i < values.counts.size(); ++i) {
    count += values.counts[i];
    with_bound.back().second =
        i < values.bounds.size() ? FormatMetricValue(values.bounds[i]) : "+Inf";
    Line("_bucket", with_bound, static_cast<double>(count));
  }
  Line("_sum", labels, values.sum);
  Line("_count", labels, static_cast<double>(count));
}

void PrometheusText::Gauge(absl::string_view name, absl::string_view help, double value) {
  Family(name, MetricType::kGauge, help);
  Sample(value);
}

void PrometheusText::Counter(absl::string_view name, absl::string_view help, double value) {
  Family(name, MetricType::kCounter, help);
  Sample(value);
}

void PrometheusText::Line(absl::string_view suffix, const MetricLabels& labels, double value) {
  CHECK(!name_.empty()) << "a sample before the first family";
  absl::StrAppend(&text_, name_, suffix);
  const char* separator = "{";
  for (const auto& [name, text] : labels) {
    CHECK(IsName(name)) << name;
    absl::StrAppend(
        &text_, separator, name, "=\"",
        absl::StrReplaceAll(ValidUtf8(text), {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
        "\"");
    separator = ",";
  }
  absl::StrAppend(&text_, labels.empty() ? "" : "}", " ", FormatMetricValue(value), "\n");
}

}  // namespace pushpull
