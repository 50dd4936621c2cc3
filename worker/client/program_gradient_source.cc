#include "worker/client/program_gradient_source.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

absl::Status Stopped() { return absl::CancelledError("this clone was told to stop"); }

}  // namespace

absl::Status ProgramGradientSource::Next(absl::Duration timeout, ProgramBatch* batch) {
  *batch = {};
  absl::MutexLock lock(&mutex_);
  if (stopped_) return Stopped();
  if (state_ == State::kTaken) {
    return absl::FailedPreconditionError(
        "the batch before has neither been finished nor given up: call pushpull_clone_finish or "
        "pushpull_clone_give_up first");
  }
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || end_.has_value() || state_ == State::kOffered;
  };
  if (!changed_.Await(&mutex_, ready, timeout)) {
    return absl::DeadlineExceededError("there is no batch to compute yet");
  }
  if (stopped_) return Stopped();
  if (state_ == State::kOffered) {
    state_ = State::kTaken;
    *batch = batch_;
    return absl::OkStatus();
  }
  batch->over = true;
  if (!end_->ok()) return *end_;
  batch->version = batch_.version;
  batch->weights = batch_.weights;
  return absl::OkStatus();
}

void ProgramGradientSource::Advance(int64_t first_final) {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken || advance_ == nullptr || first_final >= first_final_) return;
  first_final_ = std::max<int64_t>(first_final, 0);
  (*advance_)(first_final_);
}

absl::Status ProgramGradientSource::HandBack(absl::StatusOr<GradientResult> result) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return Stopped();
  if (state_ != State::kTaken) {
    return absl::FailedPreconditionError(
        "there is no batch to hand back: pushpull_clone_next has returned none since the last one");
  }
  result_ = std::move(result);
  state_ = State::kDone;
  changed_.NotifyAll();
  return absl::OkStatus();
}

void ProgramGradientSource::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

void ProgramGradientSource::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  end_ = status;
  changed_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<float>> ProgramGradientSource::AllocateVector(int64_t elements) {
  PP_ASSIGN_OR_RETURN(const std::shared_ptr<float> vector, NewVector(elements));
  absl::MutexLock lock(&mutex_);
  vectors_.push_back(vector);
  return vector;
}

void ProgramGradientSource::NoteWeights(uint64_t version, absl::Span<const float> weights) {
  absl::MutexLock lock(&mutex_);
  batch_.version = version;
  batch_.weights = weights;
}

void ProgramGradientSource::NotePart(uint32_t replica, const BatchPart& part) {
  absl::MutexLock lock(&mutex_);
  parts_[replica] = part;
}

absl::StatusOr<GradientResult> ProgramGradientSource::Compute(
    uint64_t position, uint32_t replica, absl::Span<const float> weights,
    absl::Span<float> gradient, absl::FunctionRef<void(int64_t)> advance) {
  absl::MutexLock lock(&mutex_);
  batch_.position = position;
  batch_.replica = replica;
  batch_.part = parts_[replica];
  batch_.weights = weights;
  batch_.gradient = gradient;
  first_final_ = static_cast<int64_t>(gradient.size());
  advance_ = &advance;
  state_ = State::kOffered;
  changed_.NotifyAll();
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || state_ == State::kDone;
  };
  changed_.Await(&mutex_, done, absl::InfiniteDuration());
  const bool has_result = state_ == State::kDone;
  state_ = State::kNone;
  advance_ = nullptr;
  if (!has_result) return Stopped();
  return std::move(result_);
}

}  // namespace pushpull
