// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "ps_server/monitoring/monitor.h"

#include <utility>

namespace pushpull {

Monitor::Monitor(MonitoringIdentity identity, MonitoringSources sources)
    : identity_(std::move(identity)), sources_(std::move(sources)), history_(kHistoryPoints) {}

void Monitor::Look() {
  if (!is_coordinator()) return;
  const LossSum losses = sources_.take_losses();
  // Without a loss there is nothing to draw. The next sample covers this time too.
  if (losses.steps == 0) return;
  losses_.Add(losses);
  const TrainingFigures now = sources_.figures();
  const SampleStart end = {now.images, sources_.now()};
  const std::optional<SampleStart> start = std::exchange(start_, end);
  if (!start.has_value()) return;
  HistoryPoint point;
  point.step = now.step;
  point.unix_seconds = sources_.unix_seconds();
  point.loss = losses_.sum / static_cast<double>(losses_.steps);
  point.learning_rate = now.learning_rate;
  if (end.at > start->at) {
    point.images_per_second =
        static_cast<double>(end.images - start->images) / absl::ToDoubleSeconds(end.at - start->at);
  }
  history_.Add(point);
  losses_ = {};
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
