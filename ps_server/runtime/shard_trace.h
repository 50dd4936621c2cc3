// ShardTrace records the work of a shard as rows of a trace: staging of pushes (one row per
// replica), the store's work, snapshots, and the sending of pulls (one row per clone).
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SHARD_TRACE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SHARD_TRACE_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/payload.h"
#include "common/trace/trace_writer.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Row numbers of a ps task in a trace. Replica i has row kFirstReplicaTraceRow + i, clone i has row
// kFirstCloneTraceRow + i.
enum TaskTraceRow : int {
  kStepTraceRow = 1,
  kCheckpointTraceRow = 2,
  kStoreTraceRow = 3,
  kSnapshotTraceRow = 4,
  kFirstReplicaTraceRow = 1000,
  kFirstCloneTraceRow = 2000,
};

// Returns row number `row` of ps task `task`. The writer owns the row.
TraceRow* TaskRow(TraceWriter* writer, uint32_t task, int row, absl::string_view name);

// Thread-safe. Held by a shared_ptr, because a pull may still be sent when the shard is gone.
class ShardTrace : public std::enable_shared_from_this<ShardTrace> {
 public:
  // `writer` and `clock` must outlive the object.
  ShardTrace(TraceWriter* writer, uint32_t shard, const Clock* clock);

  // A chunk of a push has arrived. The first chunk starts the span "stage".
  void OnChunk(const ps::PushKey& key);
  // All chunks of the push have arrived, which ends the span.
  void OnPushed(const ps::PushKey& key);

  // The store has finished work that it began at `begin`. what: "apply", "apply ahead",
  // "measure" or "restore".
  void OnStored(absl::string_view what, uint64_t step, absl::Duration begin);
  // A snapshot that began at `begin` has been written or has failed.
  void OnSnapshot(uint64_t step, absl::Duration begin);

  // A version is being sent to a clone. Returns `payload` with a new owner; the span lasts
  // from now until the transport releases that owner.
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
  std::map<uint32_t, OpenPush> pushes_ ABSL_GUARDED_BY(mutex_);  // by replica
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SHARD_TRACE_H_
