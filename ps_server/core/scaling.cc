// Tested by tests/ps_server/core/scaling_test.cc.
#include "ps_server/core/scaling.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/passing_error.h"
#include "common/wire/batch_division.h"

namespace pushpull {
namespace {

// Weight of the newest step in a clone's speed.
constexpr double kNewest = 0.3;
constexpr double kMinSpeed = 1e-6;
constexpr double kMaxSpeed = 1e12;

}  // namespace

Scaling::Scaling(const CoordinatorOptions& options, const JobState& job, const Membership* members,
                 CoordinatorActions* actions)
    : options_(options), job_(job), members_(members), actions_(actions) {
  if (options.scaled) on_disk_ = options.num_replicas;
}

void Scaling::Ask(CallId call, const ps::ScaleRequest& request, uint64_t next_step) {
  const uint32_t wanted = request.num_replicas();
  const uint64_t batch_size = options_.limits.batch_size;
  absl::Status refusal;
  if (!options_.sync) {
    refusal = absl::FailedPreconditionError(
        "only a synchronous job (train_config.sync_replicas) can be scaled: in asynchronous mode "
        "each replica has batches of its own, so their number is fixed for a run");
  } else if (wanted == 0 || wanted > kMaxReplicas) {
    refusal = absl::InvalidArgumentError(
        absl::StrFormat("%d replicas, expected 1 to %d", wanted, kMaxReplicas));
  } else if (wanted > batch_size) {
    refusal = absl::FailedPreconditionError(
        absl::StrFormat("%d replicas cannot share a batch of %d samples: scale to at most %d, or "
                        "raise train_config.batch_size",
                        wanted, batch_size, batch_size));
  } else if (job_.length.EndsAt(next_step - 1)) {
    refusal = absl::FailedPreconditionError(absl::StrFormat(
        "step %d is the last, so no step would have another number of replicas", next_step - 1));
  } else if (persisting_.has_value()) {
    refusal = absl::AbortedError(
        absl::StrFormat("%d replicas are being written to disk: ask again", *persisting_));
  }
  if (!refusal.ok()) {
    actions_->push_back(coordinator_action::ReplyScale{call, refusal});
    return;
  }
  call_ = call;
  // The step that follows the applied version can be divided now only if it waits for absent clones
  // or has not begun. A number that is due from a later step on is written again then, because the
  // coordinator divides the open step when the disk has answered.
  const bool is_overtaken = due_number_.has_value() && next_step == job_.version + 1;
  const bool is_settled =
      wanted == on_disk_ && wanted == due_number_.value_or(members_->num_replicas());
  if (is_settled && !is_overtaken) return Answer(next_step);
  persisting_ = wanted;
  on_disk_.reset();  // not known until the disk answers, nor after an error
  actions_->push_back(coordinator_action::PersistReplicas{wanted});
}

bool Scaling::OnPersisted(const coordinator_event::ReplicasPersisted& event) {
  if (event.num_replicas != persisting_) return false;
  persisting_.reset();
  if (!event.status.ok()) {
    Refuse(Annotated(
        event.status,
        absl::StrFormat("the number of replicas, %d, could not be written to disk for certain. "
                        "This server goes on with %d, but the next one may go on with %d: ask "
                        "again. The error was: %s",
                        event.num_replicas, members_->num_replicas(), event.num_replicas,
                        event.status.message())));
    return false;
  }
  on_disk_ = due_number_ = event.num_replicas;
  return true;
}

void Scaling::Answer(uint64_t from_step) {
  if (!call_.has_value()) return;
  ps::ScaleReply reply;
  reply.set_from_step(from_step);
  reply.set_previous_num_replicas(members_->num_replicas());
  reply.set_live_clones(members_->num_alive());
  actions_->push_back(
      coordinator_action::ReplyScale{*std::exchange(call_, std::nullopt), std::move(reply)});
}

void Scaling::Refuse(const absl::Status& status) {
  if (!call_.has_value()) return;
  actions_->push_back(coordinator_action::ReplyScale{*std::exchange(call_, std::nullopt), status});
}

std::vector<int64_t> Scaling::TakeDue() {
  measured_steps_ = 0;
  std::optional<std::vector<int64_t>> shares = std::exchange(due_shares_, std::nullopt);
  const std::optional<uint32_t> number = std::exchange(due_number_, std::nullopt);
  if (!number.has_value()) return *std::move(shares);
  return DivideEqually(static_cast<int64_t>(options_.limits.batch_size), static_cast<int>(*number));
}

void Scaling::NoteApplied(const StepCommits& commits) {
  if (!options_.shares_by_speed) return;
  struct Work {
    uint64_t samples = 0;
    double seconds = 0.0;
  };
  std::map<uint32_t, Work> work;
  for (const auto& [replica, commit] : commits.by_replica()) {
    if (!(commit.info.compute_seconds() > 0)) continue;
    Work& of_clone = work[commit.worker_id];
    of_clone.samples += commit.info.samples();
    of_clone.seconds += commit.info.compute_seconds();
  }
  for (const auto& [worker, done] : work) {
    if (done.samples == 0) continue;
    // A clone says how long it took, so any number may come.
    const double speed =
        std::clamp(static_cast<double>(done.samples) / done.seconds, kMinSpeed, kMaxSpeed);
    const auto [known, is_new] = speeds_.try_emplace(worker, speed);
    if (!is_new) known->second += kNewest * (speed - known->second);
  }
  ++measured_steps_;
}

std::vector<double> Scaling::ReplicaSpeeds() const {
  std::map<uint32_t, int> replicas_of;
  for (uint32_t i = 0; i < members_->num_replicas(); ++i) {
    if (!members_->HasLiveOwner(i)) return {};
    ++replicas_of[members_->WorkerOf(i)];
  }
  std::vector<double> speeds;
  for (uint32_t i = 0; i < members_->num_replicas(); ++i) {
    const uint32_t worker = members_->WorkerOf(i);
    const auto known = speeds_.find(worker);
    if (known == speeds_.end()) return {};
    speeds.push_back(known->second / replicas_of[worker]);
  }
  return speeds;
}

void Scaling::Plan() {
  if (!options_.shares_by_speed || !options_.sync || IsDue()) return;
  if (measured_steps_ < kMeasuredSteps) return;
  const std::vector<double> speeds = ReplicaSpeeds();
  if (speeds.empty()) return;
  std::vector<int64_t> shares =
      DivideBySpeed(static_cast<int64_t>(options_.limits.batch_size), speeds);
  const double seconds_now = SlowestSeconds(members_->shares(), speeds);
  const double seconds = SlowestSeconds(shares, speeds);
  if (seconds >= kWorthwhile * seconds_now) return;
  Tell(absl::StrFormat("shares by speed from step %d on: %s samples; a step takes %.3f s instead "
                       "of %.3f s",
                       job_.version + 2, absl::StrJoin(shares, ", "), seconds, seconds_now),
       actions_);
  due_shares_ = std::move(shares);
}

}  // namespace pushpull
