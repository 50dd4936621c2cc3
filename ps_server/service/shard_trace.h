// What a shard does, as rows of a trace: pushes being staged (one row per slot), the store's work,
// snapshots, and pulls being sent (one row per clone).
#ifndef PUSHPULL_PS_SERVER_SERVICE_SHARD_TRACE_H_
#define PUSHPULL_PS_SERVER_SERVICE_SHARD_TRACE_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/payload.h"
#include "common/trace/trace_writer.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Rows of a ps task's process in a trace; those of slots and clones follow from the last two on.
enum TaskTraceRow : int {
  kStepTraceRow = 1,
  kCheckpointTraceRow = 2,
  kStoreTraceRow = 3,
  kSnapshotTraceRow = 4,
  kFirstSlotTraceRow = 1000,
  kFirstCloneTraceRow = 2000,
};

// The row `row` of ps task `task`.
TraceRow* TaskRow(TraceWriter* writer, uint32_t task, int row, absl::string_view name);

// Thread-safe. Held by a shared_ptr, as a pull may be under way when everything else has gone.
class ShardTrace : public std::enable_shared_from_this<ShardTrace> {
 public:
  // writer and clock must outlive the object.
  ShardTrace(TraceWriter* writer, uint32_t shard, const Clock* clock);

  // A chunk of a push arrived; the first one begins "stage".
  void OnChunk(const ps::PushKey& key);
  // All of its chunks have arrived.
  void OnPushed(const ps::PushKey& key);

  // The store began at `begin` and is done: "apply", "measure", "restore".
  void OnStored(absl::string_view what, uint64_t step, absl::Duration begin);
  void OnSnapshot(uint64_t step, absl::Duration begin);

  // A version goes to a clone, from now on until the transport has let go of what is returned.
  Payload OnPull(uint32_t worker_id, uint64_t version, Payload payload);

  absl::Duration Now() const { return clock_->Now(); }

 private:
  struct OpenPush {
    uint64_t step = 0;
    uint64_t grant = 0;
    absl::Duration begin;
  };

  TraceWriter* const writer_;
  const uint32_t shard_;
  const Clock* const clock_;
  TraceRow* const store_;
  TraceRow* const snapshots_;
  absl::Mutex mutex_;
  std::map<uint32_t, OpenPush> pushes_ ABSL_GUARDED_BY(mutex_);  // by slot
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SHARD_TRACE_H_
