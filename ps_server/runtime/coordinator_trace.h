// CoordinatorTrace records the coordinator's waits and checkpoints as rows of a trace.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_TRACE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_TRACE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/trace/trace_writer.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

// In sync mode a span "wait" lasts from the first commit of a step to the decision to apply the
// step. It names the clone that committed last, or the replicas that are left out of the step. A
// span "checkpoint" lasts from the first snapshot call to the publication. Thread-safe.
class CoordinatorTrace {
 public:
  // `writer` and `clock` must outlive the object.
  CoordinatorTrace(TraceWriter* writer, bool sync, const Clock* clock);

  void OnCommit(const ps::PushKey& key);
  // The coordinator is about to send `call` to a shard. num_replicas: replicas of the job.
  void OnCall(const ShardCall& call, uint32_t num_replicas);
  void OnPublished(uint64_t step, const absl::Status& status);

 private:
  void OnDecided(const ps::ApplyRequest& request, uint32_t num_replicas);

  const bool sync_;
  const Clock* const clock_;
  TraceRow* const steps_;
  TraceRow* const checkpoints_;

  struct Commits {
    absl::Duration first;
    uint32_t last_worker = 0;
  };
  absl::Mutex mutex_;
  std::map<uint64_t, Commits> commits_ ABSL_GUARDED_BY(mutex_);  // by step; open steps only
  uint64_t decided_ ABSL_GUARDED_BY(mutex_) = 0;  // newest step that is being applied
  std::map<uint64_t, absl::Duration> snapshots_ ABSL_GUARDED_BY(mutex_);  // start time, by step
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_TRACE_H_
