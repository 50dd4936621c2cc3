// Looks at the server for those who watch it: gathers what it knows of itself, and keeps the
// training's course.
#ifndef PUSHPULL_PS_SERVER_WATCH_WATCHER_H_
#define PUSHPULL_PS_SERVER_WATCH_WATCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protos/parameter_server.pb.h"
#include "ps_server/watch/history.h"
#include "ps_server/watch/process_stats.h"
#include "ps_server/watch/request_counters.h"
#include "ps_server/watch/training_figures.h"

namespace pushpull {

// What does not change.
struct WatchIdentity {
  std::string version;  // of the build
  int tasks = 1;        // of the job
  int first_task = 0;   // the tasks held here: first_task .. first_task + counters.size() - 1
  bool sync = true;
};

// Where to look. Thread-safe functions that do not block.
struct WatchSources {
  // Of task 0's process; never called elsewhere.
  std::function<ps::StatusReply()> status;
  std::function<TrainingFigures()> figures;
  std::vector<std::shared_ptr<const RequestCounters>> counters;  // one per task held here
  std::function<double()> unix_seconds;
};

struct ShardTraffic {
  int shard = 0;
  std::shared_ptr<const RequestCounters> counters;
};

// All that is shown, at one time.
struct WatchSnapshot {
  WatchIdentity identity;
  bool is_coordinator = true;  // task 0 is here: status, figures and history are filled
  double unix_seconds = 0.0;
  ps::StatusReply status;
  TrainingFigures figures;
  std::vector<ShardTraffic> shards;
  std::vector<HistoryPoint> history;
  ProcessStats process;
};

// Not thread-safe: belongs to the thread that serves.
class Watcher {
 public:
  static constexpr size_t kHistoryPoints = 512;

  Watcher(WatchIdentity identity, WatchSources sources);

  // To be called about once a second: adds a point to the course when there were steps.
  void Look();
  WatchSnapshot Snapshot() const;

 private:
  bool is_coordinator() const { return identity_.first_task == 0; }

  const WatchIdentity identity_;
  const WatchSources sources_;
  History history_;
  TrainingFigures last_;  // of the last look
  double last_unix_seconds_ = 0.0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_WATCHER_H_
