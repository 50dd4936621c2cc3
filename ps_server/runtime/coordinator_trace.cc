// Tested by tests/ps_server/runtime/server_trace_test.cc.
#include "ps_server/runtime/coordinator_trace.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ps_server/runtime/overloaded.h"
#include "ps_server/runtime/shard_trace.h"

namespace pushpull {
namespace {

// The coordinator refuses commits for steps that are not open, but the trace sees commits before
// the coordinator has decided. This bounds how many steps are kept.
constexpr size_t kMaxOpenSteps = 4;

std::string WaitedFor(const ps::ApplyRequest& request, uint32_t num_replicas,
                      uint32_t last_worker) {
  std::set<uint32_t> missing;
  for (uint32_t replica = 0; replica < num_replicas; ++replica) missing.insert(replica);
  for (const ps::Contribution& part : request.contributions()) missing.erase(part.replica());
  if (missing.empty()) return absl::StrCat("clone ", last_worker);
  return absl::StrCat("replicas ", absl::StrJoin(missing, ", "), ", which are left out");
}

}  // namespace

CoordinatorTrace::CoordinatorTrace(TraceWriter* writer, bool sync, const Clock* clock)
    : sync_(sync),
      clock_(clock),
      steps_(TaskRow(writer, 0, kStepTraceRow, "wait for the step")),
      checkpoints_(TaskRow(writer, 0, kCheckpointTraceRow, "checkpoint")) {}

void CoordinatorTrace::OnCommit(const ps::PushKey& key) {
  if (!sync_) return;
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  if (key.step() <= decided_) return;
  Commits& commits = commits_.try_emplace(key.step(), Commits{now, 0}).first->second;
  commits.last_worker = key.worker_id();
  if (commits_.size() > kMaxOpenSteps) commits_.erase(std::prev(commits_.end()));
}

void CoordinatorTrace::OnCall(const ShardCall& call, uint32_t num_replicas) {
  std::visit(Overloaded{
                 [&](const shard_call::MeasureNorm& c) { OnDecided(c.request, num_replicas); },
                 [&](const shard_call::Apply& c) { OnDecided(c.request, num_replicas); },
                 [&](const shard_call::Snapshot& c) {
                   absl::MutexLock lock(&mutex_);
                   snapshots_.try_emplace(c.request.step(), clock_->Now());
                 },
                 [&](const shard_call::Restore& c) {
                   // A restore may roll steps back.
                   absl::MutexLock lock(&mutex_);
                   decided_ = c.request.step();
                   commits_.clear();
                   snapshots_.clear();
                 },
                 [](const shard_call::GetState&) {},
             },
             call);
}

void CoordinatorTrace::OnDecided(const ps::ApplyRequest& request, uint32_t num_replicas) {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const auto commits = commits_.find(request.step());
  // The calls to the other shards for the same step find no commits.
  if (!sync_ || commits == commits_.end()) return;
  decided_ = request.step();
  const std::string waited_for = WaitedFor(request, num_replicas, commits->second.last_worker);
  steps_->Add("wait", commits->second.first, now,
              {{"step", request.step()}, {"for", absl::string_view(waited_for)}});
  commits_.erase(commits_.begin(), std::next(commits));
}

void CoordinatorTrace::OnPublished(uint64_t step, const absl::Status& status) {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const auto begin = snapshots_.find(step);
  if (begin == snapshots_.end()) return;
  checkpoints_->Add(status.ok() ? "checkpoint" : "failed checkpoint", begin->second, now,
                    {{"step", step}});
  snapshots_.erase(snapshots_.begin(), std::next(begin));
}

}  // namespace pushpull
