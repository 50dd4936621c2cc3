// What the coordinator waits for and publishes, as rows of a trace.
#ifndef PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_TRACE_H_
#define PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_TRACE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/trace/trace_writer.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

// Thread-safe. Sync: "wait" goes from a step's first commit to the decision to apply it, and names
// the clone that committed last, or the slots that the step went on without. "checkpoint" goes from
// the call for snapshots to the publication.
class CoordinatorTrace {
 public:
  // writer and clock must outlive the object.
  CoordinatorTrace(TraceWriter* writer, bool sync, const Clock* clock);

  void OnCommit(const ps::PushKey& key);
  // The coordinator calls a shard; num_slots of the job.
  void OnCall(const ShardCall& call, uint32_t num_slots);
  void OnPublished(uint64_t step, const absl::Status& status);

 private:
  void OnDecided(const ps::ApplyRequest& request, uint32_t num_slots);

  const bool sync_;
  const Clock* const clock_;
  TraceRow* const steps_;
  TraceRow* const checkpoints_;

  struct Commits {
    absl::Duration first;
    uint32_t last_worker = 0;
  };
  absl::Mutex mutex_;
  std::map<uint64_t, Commits> commits_ ABSL_GUARDED_BY(mutex_);  // by step, not yet decided
  uint64_t decided_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, absl::Duration> snapshots_ ABSL_GUARDED_BY(mutex_);  // by step: begin
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_TRACE_H_
