// MetricsPage formats a monitoring snapshot as Prometheus metrics, for /metrics: the text
// exposition format, version 0.0.4, as prometheus-cpp writes it.
#ifndef PUSHPULL_PS_SERVER_MONITORING_METRICS_PAGE_H_
#define PUSHPULL_PS_SERVER_MONITORING_METRICS_PAGE_H_

#include <string>

#include "ps_server/monitoring/monitor.h"

namespace pushpull {

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Only the process of task 0 has the metrics of the job and the clones. Every process has the
// metrics of its shards and of itself. A value that is not known has no sample. Thread-safe.
std::string MetricsPage(const MonitoringSnapshot& snapshot);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_METRICS_PAGE_H_
