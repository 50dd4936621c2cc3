// /metrics: everything of a snapshot as Prometheus metrics.
#ifndef PUSHPULL_PS_SERVER_WATCH_METRICS_PAGE_H_
#define PUSHPULL_PS_SERVER_WATCH_METRICS_PAGE_H_

#include <string>

#include "ps_server/watch/watcher.h"

namespace pushpull {

// The job's and the clones' metrics come from task 0's process only, the shards' and the process's
// from every one. A figure that is not known has no sample.
std::string MetricsPage(const WatchSnapshot& snapshot);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_METRICS_PAGE_H_
