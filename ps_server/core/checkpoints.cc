#include "ps_server/core/checkpoints.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"

#include "common/base/passing_error.h"

namespace pushpull {
namespace {

constexpr uint32_t kMaxFinalFailures = 3;
constexpr uint32_t kMaxOvertaken = 3;
constexpr absl::Duration kPause = absl::Seconds(1);  // after the first failure

}  // namespace

Checkpoints::Checkpoints(const CoordinatorOptions& options, const JobState& job,
                         CoordinatorActions* actions)
    : options_(options), job_(job), actions_(actions) {}

void Checkpoints::SetNewest(const std::optional<FoundCheckpoint>& checkpoint) {
  newest_step_.reset();
  if (checkpoint.has_value()) newest_step_ = checkpoint->id.version;
  durable_says_done_ = checkpoint.has_value() && checkpoint->training_done;
  const absl::Duration age = checkpoint.has_value() ? checkpoint->age : absl::InfiniteDuration();
  unsaved_since_ = job_.now - std::min(age, options_.save_checkpoints_every);
}

std::string Checkpoints::DescribeNewest() const {
  if (!newest_step_.has_value()) return "no checkpoint has been published";
  return absl::StrFormat("the newest checkpoint is of step %d", *newest_step_);
}

void Checkpoints::BeginEpoch() {
  is_final_ = false;
  // A new epoch or process saves nothing, so steps that are not saved keep their age.
  if (job_.version <= durable_step()) unsaved_since_ = job_.now;
  retry_at_ = absl::ZeroDuration();
}

void Checkpoints::BeginFinal() {
  is_final_ = true;
  final_failures_ = failures_in_a_row_ = 0;
  final_failed_since_.reset();
  retry_at_ = absl::ZeroDuration();
}

absl::Duration Checkpoints::NextWakeup() const {
  if (phase_ != Phase::kIdle || HasCheckpoint()) return absl::InfiniteDuration();
  if (!is_final_ && !calls_.empty()) return absl::ZeroDuration();
  if (is_final_ || failures_in_a_row_ > 0) return retry_at_;
  if (options_.save_checkpoints_every == absl::ZeroDuration()) return absl::InfiniteDuration();
  return unsaved_since_ + options_.save_checkpoints_every;
}

Followup Checkpoints::StartIfDue() {
  if (phase_ != Phase::kIdle || HasCheckpoint()) return followup::None{};
  const uint64_t every = options_.save_checkpoints_steps;
  const bool by_steps =
      every > 0 && failures_in_a_row_ == 0 && job_.version / every > durable_step() / every;
  const bool by_time = options_.save_checkpoints_every > absl::ZeroDuration() &&
                       failures_in_a_row_ == 0 &&
                       job_.now - unsaved_since_ >= options_.save_checkpoints_every;
  const bool again = failures_in_a_row_ > 0 && job_.now >= retry_at_;
  if (by_steps || by_time || again || !calls_.empty()) return Start();
  return followup::None{};
}

Followup Checkpoints::StartFinalIfDue() {
  const bool waits = phase_ != Phase::kIdle || job_.now < retry_at_;
  if (waits || HasCheckpoint()) return followup::None{};
  return Start();
}

Followup Checkpoints::Start() {
  phase_ = Phase::kSnapshots;
  step_ = job_.version;
  started_ = job_.now;
  ps::SnapshotRequest request;
  request.set_run_id(options_.run_id);
  request.set_epoch(job_.epoch);
  request.set_step(step_);
  request.set_attempt(++attempts_);
  return followup::CallShards{shard_call::Snapshot{request}};
}

void Checkpoints::OnReplies(std::vector<ShardReply> replies, std::vector<std::string> devices) {
  coordinator_action::PublishCheckpoint publish;
  publish.step = step_;
  publish.epoch = job_.epoch;
  says_done_ = job_.length.EndsAt(step_);
  publish.training_done = says_done_;
  publish.last_step = job_.length.last_step();
  publish.num_images = job_.length.num_images();
  publish.devices = std::move(devices);
  for (ShardReply& reply : replies) {
    publish.shards.push_back(std::get<ps::SnapshotReply>(std::move(reply)));
  }
  phase_ = Phase::kPublishing;
  actions_->push_back(std::move(publish));
}

Followup Checkpoints::OnPublished(const coordinator_event::CheckpointPublished& event) {
  if (phase_ != Phase::kPublishing || event.step != step_) return followup::None{};
  if (absl::IsAborted(event.status)) {
    ++failures_;
    return followup::Stop{event.status};
  }
  if (!event.status.ok()) return Fail(event.status);
  phase_ = Phase::kIdle;
  failures_in_a_row_ = overtaken_in_a_row_ = 0;
  newest_step_ = event.step;
  durable_says_done_ = says_done_;
  unsaved_since_ = job_.now;
  published_at_ = job_.now;
  took_ = job_.now - started_;
  ++published_;
  AnswerCalls();
  return followup::Published{};
}

Followup Checkpoints::OnCallFailed(const absl::Status& status, bool gone) {
  // The steps were faster than the call. The checkpoint is still due, so it begins again with a
  // newer version.
  if (gone && step_ != job_.version && ++overtaken_in_a_row_ <= kMaxOvertaken) {
    Abandon();
    return followup::None{};
  }
  return Fail(status);
}

Followup Checkpoints::Fail(const absl::Status& status) {
  overtaken_in_a_row_ = 0;
  ++failures_;
  retry_at_ = job_.now + kPause * (1 << std::min<uint32_t>(failures_in_a_row_, 6));
  ++failures_in_a_row_;
  Warn(absl::StrFormat("the checkpoint of step %d failed: %s; %s", step_, status.message(),
                       DescribeNewest()),
       actions_);
  Refuse(step_, status);
  Abandon();
  // A checkpoint that began before the last step does not count as a failure of the last one.
  if (!is_final_ || step_ != job_.version) return followup::None{};
  if (!final_failed_since_.has_value()) final_failed_since_ = job_.now;
  // A process that drains has no time to wait: its scheduler kills it soon.
  const bool waits = IsPassing(status) && !job_.draining;
  const bool gives_up = waits ? job_.now - *final_failed_since_ >= options_.disk_patience
                              : ++final_failures_ >= kMaxFinalFailures;
  if (!gives_up) return followup::None{};
  return followup::FinalCheckpointFailed{Annotated(
      status, absl::StrFormat("the final checkpoint could not be written: %s", status.message()))};
}

void Checkpoints::Abandon() {
  if (phase_ == Phase::kIdle) return;
  phase_ = Phase::kIdle;
  actions_->push_back(coordinator_action::AbandonCheckpoint{step_});
}

void Checkpoints::Ask(CallId call) {
  calls_.push_back({call, job_.version});
  AnswerCalls();  // the newest checkpoint may satisfy the call already
}

void Checkpoints::Cancel(CallId call) {
  std::erase_if(calls_, [call](const Call& waiting) { return waiting.call == call; });
}

void Checkpoints::AnswerCalls() {
  std::erase_if(calls_, [this](const Call& call) {
    if (call.version > durable_step()) return false;
    ps::CheckpointReply reply;
    reply.set_step(durable_step());
    actions_->push_back(coordinator_action::ReplyCheckpoint{call.call, std::move(reply)});
    return true;
  });
}

void Checkpoints::Refuse(uint64_t up_to_step, const absl::Status& status) {
  std::erase_if(calls_, [&](const Call& call) {
    if (call.version > up_to_step) return false;
    actions_->push_back(coordinator_action::ReplyCheckpoint{call.call, status});
    return true;
  });
}

void Checkpoints::AddTo(ps::StatusReply* status, absl::Duration now) const {
  status->set_durable_step(durable_step());
  status->set_has_checkpoint(newest_step_.has_value());
  status->set_checkpoint_failures(failures_);
  status->set_checkpoints(published_);
  status->set_seconds_since_checkpoint(
      published_at_.has_value() ? absl::ToDoubleSeconds(now - *published_at_) : -1);
  status->set_last_checkpoint_seconds(absl::ToDoubleSeconds(took_));
}

}  // namespace pushpull
