// How a ServerCore ends: how its process learns of the end of the job and tells other processes.
// Tested by tests/ps_server/runtime/announce_end_test.cc.
// Tested by tests/ps_server/runtime/server_test.cc.
#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/wire/error_detail.h"
#include "ps_server/core/stop_reason.h"
#include "ps_server/runtime/job_drain.h"
#include "ps_server/runtime/server_core.h"

namespace pushpull {

void ServerCore::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value() && !end_is_found_) return;
  end_ = status;
  end_is_found_ = false;
  end_changed_.NotifyAll();
}

void ServerCore::EndAsFound(const EndOfRun& found) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  LOG(INFO) << "ps task 0 gives no orders, and the checkpoint of step " << found.step
            << " is the end of this run: this task has nothing left to do";
  end_ = absl::OkStatus();
  end_is_found_ = true;
  verified_step_ = found.step;
  end_changed_.NotifyAll();
}

void ServerCore::TakeBackFoundEnd() {
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(end_is_found_, false)) return;
  end_.reset();
  verified_step_.reset();
}

bool ServerCore::IsGivenUp(const EndOfRun& found) const {
  if (!options_.from_checkpoint) return false;
  return !run_files_.all_restored() || found.epoch < shards_.front()->epoch();
}

std::optional<absl::Status> ServerCore::WaitForEnd(absl::Duration patience) {
  // Task 0 is silent after the last step, and tells the other tasks of the end within a lease.
  const absl::Duration silence = std::max(kSilentCoordinator, options_.lease);
  const bool may_be_over = !options_.from_checkpoint || run_files_.all_restored();
  if (may_be_over && CoordinatorIsSilentFor(silence)) {
    const std::optional<EndOfRun> found = finished_run_.Look(job_, run_id_);
    // Task 0 may have come back while the checkpoint was read.
    if (found.has_value() && !IsGivenUp(*found) && CoordinatorIsSilentFor(silence)) {
      EndAsFound(*found);
    }
  }
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  end_changed_.Await(&mutex_, ended, patience);
  return end_;
}

void ServerCore::NoteDrain() {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  drain_since_ = std::min(drain_since_, now);
}

void ServerCore::Drain() {
  NoteDrain();
  if (IsCoordinator()) {
    coordinator_->Drain();
  } else {
    if (drain_.joinable()) return;
    drain_ = std::thread([this] { DrainJob(); });
  }
}

void ServerCore::EndAsTold(const ps::EndTaskRequest& request) {
  {
    absl::MutexLock lock(&mutex_);
    if (request.has_verified_step()) verified_step_ = request.verified_step();
  }
  end_wanted_.store(true);
  switch (request.how()) {
    case ps::EndTaskRequest::DONE:
      return End(absl::OkStatus());
    case ps::EndTaskRequest::DRAINED:
      return End(absl::CancelledError("drained"));
    default:
      break;
  }
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::STOPPED);
  End(MakeError(detail, absl::StrCat("training was stopped: ", request.reason())));
}

void ServerCore::DrainJob() {
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || closing_;
  };
  const auto await_end = [this, &over](absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    return end_changed_.Await(&mutex_, over, patience);
  };
  const std::string why = DrainThroughTask0(options_.drain_job, await_end, clock_);
  if (why.empty()) return;
  LOG(WARNING) << why;
  End(absl::CancelledError("drained"));
}

void ServerCore::AnnounceEnd(const absl::Status& end) {
  const bool drained = IsDrained(end);
  // Clones and other tasks belong to the server that goes on with the job.
  if (!IsCoordinator() || AnotherServerGoesOn(end)) return;
  // Clones may still pull the last weights from the other tasks, which end when they are told.
  const absl::Duration tell_tasks_at =
      end.ok() ? clock_->Now() + options_.lease / 2 : -absl::InfiniteDuration();
  absl::Duration deadline = clock_->Now() + options_.lease;
  if (drained) {
    // A drain that has taken its whole limit leaves time for one attempt.
    absl::MutexLock lock(&mutex_);
    deadline = std::min(deadline, drain_since_ + CoordinatorOptions().drain_limit);
  }
  for (;;) {
    const std::optional<uint64_t> verified_step = VerifiedStep();
    const bool clones_know = drained || coordinator_->EveryCloneKnowsOfTheEnd();
    const bool tasks_know = (clones_know || clock_->Now() >= tell_tasks_at) &&
                            coordinator_->TellTasksOfTheEnd(end, verified_step);
    if (tasks_know && clones_know) return;
    if (clock_->Now() >= deadline) break;
    clock_->Sleep(absl::Milliseconds(20));
  }
}

std::optional<uint64_t> ServerCore::VerifiedStep() {
  {
    absl::MutexLock lock(&mutex_);
    if (!IsCoordinator() || std::exchange(has_verified_, true)) return verified_step_;
  }
  const uint64_t durable_step = coordinator_->Status().durable_step();
  if (durable_step == 0) return std::nullopt;
  const absl::Status verified = checkpointer_->Verify(durable_step);
  LOG_IF(WARNING, !verified.ok()) << "the last checkpoint does not verify: " << verified.message();
  absl::MutexLock lock(&mutex_);
  if (verified.ok()) verified_step_ = durable_step;
  return verified_step_;
}

void ServerCore::Close() {
  const std::optional<uint64_t> verified_step = VerifiedStep();
  StopThreads();
  run_files_.End(verified_step);
}

bool ServerCore::CoordinatorIsSilent() const { return CoordinatorIsSilentFor(kSilentCoordinator); }

bool ServerCore::CoordinatorIsSilentFor(absl::Duration duration) const {
  if (IsCoordinator()) return false;
  {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return false;
  }
  absl::Duration last_call = -absl::InfiniteDuration();
  for (const auto& shard : shards_) last_call = std::max(last_call, shard->last_coordinator_call());
  return clock_->Now() - last_call >= duration;
}

}  // namespace pushpull
