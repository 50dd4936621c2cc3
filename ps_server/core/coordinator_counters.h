// Counters of a Coordinator for its status, the metrics and the status page. No decision depends on
// them.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_COUNTERS_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_COUNTERS_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

#include "ps_server/core/count_histogram.h"

namespace pushpull {

// Since the server started.
struct CoordinatorCounters {
  uint64_t dropped_contributions = 0;
  uint64_t duplicate_commits = 0;
  uint64_t void_contributions = 0;
  CountHistogram staleness;     // async: of the applied pushes
  CountHistogram contributors;  // sync: of the applied steps
  uint64_t checkpoints = 0;
  uint64_t checkpoint_failures = 0;
  std::optional<absl::Duration> published_at;  // of the newest checkpoint; steady time
  absl::Duration checkpoint_took = absl::ZeroDuration();
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_COUNTERS_H_
