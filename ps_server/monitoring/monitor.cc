// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "ps_server/monitoring/monitor.h"

#include <utility>

namespace pushpull {

Monitor::Monitor(MonitoringIdentity identity, MonitoringSources sources)
    : identity_(std::move(identity)), sources_(std::move(sources)), history_(kHistoryPoints) {
  last_unix_seconds_ = sources_.unix_seconds();
}

void Monitor::Look() {
  if (!is_coordinator()) return;
  TrainingFigures now = sources_.figures();
  // Without a loss there is nothing to draw. The next sample covers this time too.
  if (now.losses == last_.losses) return;
  const double unix_seconds = sources_.unix_seconds();
  const double elapsed = unix_seconds - last_unix_seconds_;
  HistoryPoint point;
  point.step = now.step;
  point.unix_seconds = unix_seconds;
  point.loss = (now.loss_sum - last_.loss_sum) / static_cast<double>(now.losses - last_.losses);
  point.learning_rate = now.learning_rate;
  if (elapsed > 0.0) {
    point.images_per_second = static_cast<double>(now.images - last_.images) / elapsed;
  }
  history_.Add(point);
  last_ = std::move(now);
  last_unix_seconds_ = unix_seconds;
}

MonitoringSnapshot Monitor::Snapshot() const {
  MonitoringSnapshot snapshot;
  snapshot.identity = identity_;
  snapshot.is_coordinator = is_coordinator();
  snapshot.unix_seconds = sources_.unix_seconds();
  if (is_coordinator()) {
    snapshot.status = sources_.status();
    snapshot.figures = sources_.figures();
    snapshot.history = history_.Points();
  }
  for (size_t i = 0; i < sources_.counters.size(); ++i) {
    snapshot.shards.push_back({identity_.first_task + static_cast<int>(i), sources_.counters[i]});
  }
  snapshot.process = ReadProcessStats();
  return snapshot;
}

}  // namespace pushpull
