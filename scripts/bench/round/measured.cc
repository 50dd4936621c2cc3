#include "scripts/bench/round/measured.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "scripts/bench/median.h"

namespace pushpull {

Measured MedianOf(const std::vector<Measured>& runs) {
  Measured result;
  for (double Measured::*value : {&Measured::push_ms, &Measured::round_ms, &Measured::clone_cpu_ms,
                                  &Measured::server_cpu_ms, &Measured::sockets_ms}) {
    std::vector<double> values;
    for (const Measured& run : runs) values.push_back(run.*value);
    result.*value = Median(values);
  }
  for (std::optional<double> Measured::*value :
       {&Measured::zeromq_tcp_ms, &Measured::zeromq_ipc_ms}) {
    std::vector<double> values;
    for (const Measured& run : runs) {
      if ((run.*value).has_value()) values.push_back(*(run.*value));
    }
    if (!values.empty()) result.*value = Median(values);
  }
  for (const Measured& run : runs) result.rss_mb = std::max(result.rss_mb, run.rss_mb);
  return result;
}

std::string AgainstZeroMq(double round_ms, std::optional<double> zeromq_ms) {
  if (!zeromq_ms.has_value()) return absl::StrFormat("%6s %5s", "-", "-");
  return absl::StrFormat("%6.2f %5.2f", *zeromq_ms, round_ms / *zeromq_ms);
}

}  // namespace pushpull
