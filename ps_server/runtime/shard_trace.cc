// Tested by tests/ps_server/runtime/server_trace_test.cc.
#include "ps_server/runtime/shard_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/trace/trace_parts.h"
#include "ps_server/core/shard_events.h"

namespace pushpull {

TraceRow* TaskRow(TraceWriter* writer, uint32_t task, int row, absl::string_view name) {
  return writer->Row(TraceProcessOfTask(static_cast<int>(task)), absl::StrCat("ps task ", task),
                     row, name);
}

ShardTrace::ShardTrace(TraceWriter* writer, uint32_t shard, const Clock* clock)
    : writer_(writer),
      shard_(shard),
      clock_(clock),
      store_(TaskRow(writer, shard, kStoreTraceRow, "store")),
      snapshots_(TaskRow(writer, shard, kSnapshotTraceRow, "snapshot")) {}

void ShardTrace::OnChunk(const ps::PushKey& key) {
  if (key.replica() >= kMaxReplicas) return;  // the shard refuses this push
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  OpenPush& open = pushes_[key.replica()];
  if (open.step == key.step() && open.grant == key.grant()) return;
  open = {key.step(), key.grant(), now};
}

void ShardTrace::OnPushed(const ps::PushKey& key) {
  absl::Duration begin;
  {
    absl::MutexLock lock(&mutex_);
    const auto open = pushes_.find(key.replica());
    if (open == pushes_.end() || open->second.step != key.step() ||
        open->second.grant != key.grant()) {
      return;
    }
    begin = open->second.begin;
    pushes_.erase(open);
  }
  const uint64_t replica = key.replica();
  TaskRow(writer_, shard_, kFirstReplicaTraceRow + static_cast<int>(replica),
          absl::StrCat("push of replica ", replica))
      ->Add("stage", begin, clock_->Now(),
            {{"step", key.step()},
             {"replica", replica},
             {"shard", uint64_t{shard_}},
             {"clone", uint64_t{key.worker_id()}}});
}

void ShardTrace::OnStored(absl::string_view what, uint64_t step, absl::Duration begin) {
  store_->Add(what, begin, clock_->Now(), {{"step", step}});
}

void ShardTrace::OnSnapshot(uint64_t step, absl::Duration begin) {
  snapshots_->Add("snapshot", begin, clock_->Now(), {{"step", step}});
}

Payload ShardTrace::OnPull(uint32_t worker_id, uint64_t version, Payload payload) {
  // Peers without a valid worker id share one row, which bounds the number of rows.
  const uint32_t clone = std::min(worker_id, kMaxReplicas);
  TraceRow* const row = TaskRow(
      writer_, shard_, kFirstCloneTraceRow + static_cast<int>(clone),
      clone < kMaxReplicas ? absl::StrCat("pull of clone ", clone) : std::string("other pulls"));
  const void* const owner = payload.owner.get();
  payload.owner = std::shared_ptr<const void>(
      owner, [self = shared_from_this(), row, version, begin = clock_->Now(),
              pinned = std::move(payload.owner)](const void*) mutable {
        pinned.reset();
        row->Add("pull", begin, self->clock_->Now(), {{"version", version}});
      });
  return payload;
}

}  // namespace pushpull
