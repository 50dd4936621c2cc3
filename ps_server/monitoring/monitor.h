// Monitor collects the state of a ps_server process for monitoring and keeps the history of the
// training.
#ifndef PUSHPULL_PS_SERVER_MONITORING_MONITOR_H_
#define PUSHPULL_PS_SERVER_MONITORING_MONITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/monitoring/history.h"
#include "ps_server/monitoring/process_stats.h"
#include "ps_server/monitoring/request_counters.h"
#include "ps_server/monitoring/training_figures.h"

namespace pushpull {

// The part of the state that does not change.
struct MonitoringIdentity {
  std::string version;  // version of the build
  int tasks = 1;        // ps tasks of the job
  int first_task = 0;   // the process holds first_task .. first_task + counters.size() - 1
  bool sync = true;
};

// Functions that return the current state. They are thread-safe and do not block.
struct MonitoringSources {
  // These three are only called in the process of task 0.
  std::function<ps::StatusReply()> status;
  std::function<TrainingFigures()> figures;
  // Returns the losses since the last call.
  std::function<LossSum()> take_losses;
  std::vector<std::shared_ptr<const RequestCounters>> counters;  // one per task of this process
  std::function<double()> unix_seconds;                          // for dates; may be set back
  std::function<absl::Duration()> now;                           // steady time, for rates
};

struct ShardTraffic {
  int shard = 0;
  std::shared_ptr<const RequestCounters> counters;
};

// Everything that the pages show, read at one time.
struct MonitoringSnapshot {
  MonitoringIdentity identity;
  bool is_coordinator =
      true;  // task 0 is in this process; otherwise status, figures and history are empty
  double unix_seconds = 0.0;
  ps::StatusReply status;
  TrainingFigures figures;
  std::vector<ShardTraffic> shards;
  std::vector<HistoryPoint> history;
  ProcessStats process;
};

// Not thread-safe. The thread that serves the pages uses it.
class Monitor {
 public:
  static constexpr size_t kHistoryPoints = 512;

  Monitor(MonitoringIdentity identity, MonitoringSources sources);

  // Adds a sample to the history if there was a step with a finite loss since the last sample. The
  // first such step only begins the first sample, because nobody knows how long it took. To be
  // called about once a second.
  void Look();
  MonitoringSnapshot Snapshot() const;

 private:
  bool is_coordinator() const { return identity_.first_task == 0; }

  const MonitoringIdentity identity_;
  const MonitoringSources sources_;
  History history_;
  LossSum losses_;  // since the last sample
  // What the present sample is measured from.
  struct SampleStart {
    uint64_t images = 0;
    absl::Duration at;
  };
  std::optional<SampleStart> start_;  // null before the first step
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_MONITOR_H_
