#include "worker/train/worker_progress.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// Returns what the worker waits for because of clone k, or an empty string.
std::string WaitOf(const std::vector<CloneState>& clones, size_t k) {
  const CloneState& clone = clones[k];
  switch (clone.phase) {
    case CloneState::Phase::kRestarting:
      return absl::StrCat("clone ", k, " of ", clones.size(), " (", clone.last_death, ")");
    case CloneState::Phase::kStarting:
      return absl::StrCat("clone ", k, " of ", clones.size(), " (starting)");
    case CloneState::Phase::kRunning:
    case CloneState::Phase::kDone:
      return clone.report.waiting_for;
    case CloneState::Phase::kLeft:
      break;
  }
  return "";
}

// A clone of this worker that does not run is better to know than what a running one waits for.
bool IsDown(const CloneState& clone) {
  return clone.phase == CloneState::Phase::kRestarting ||
         clone.phase == CloneState::Phase::kStarting;
}

// Whether the clone runs, or has ended, without a replica to compute, so that it hinders nobody.
bool IsSpare(const CloneState& clone) {
  return (clone.phase == CloneState::Phase::kRunning || clone.phase == CloneState::Phase::kDone) &&
         clone.report.waiting_for == kWaitOfSpare;
}

bool IsWorking(const CloneState& clone) {
  return clone.phase == CloneState::Phase::kRunning && !IsSpare(clone);
}

}  // namespace

std::optional<Progress> WorkerProgress::Merge(const std::vector<CloneState>& clones) const {
  Progress progress;
  double accuracy = 0.0;
  int trained = 0;
  bool has_accuracy = true;
  for (const CloneState& clone : clones) {
    const CloneReport& report = clone.report;
    if (clone.phase == CloneState::Phase::kLeft || report.step == 0) continue;
    if (IsSpare(clone)) continue;
    ++trained;
    progress.step = std::max(progress.step, static_cast<int64_t>(report.step));
    progress.num_steps = static_cast<int64_t>(report.num_steps);
    progress.loss += report.loss;
    accuracy += report.accuracy;
    has_accuracy = has_accuracy && report.accuracy >= 0.0;
    progress.learning_rate = report.learning_rate;
    progress.images_per_second += report.images_per_second;
    progress.clone_images_per_second.push_back(report.images_per_second);
    progress.staleness += static_cast<double>(report.staleness);
  }
  if (trained == 0) return std::nullopt;
  progress.loss /= trained;
  progress.staleness /= trained;
  if (has_accuracy) progress.accuracy = accuracy / trained;
  if (size_.num_examples > 0) {
    progress.epoch = static_cast<double>(progress.step) * static_cast<double>(size_.batch_size) /
                     static_cast<double>(size_.num_examples);
  }
  return progress;
}

void WorkerProgress::CountImages(const std::vector<CloneState>& clones) {
  clone_images_.resize(clones.size());
  for (size_t k = 0; k < clones.size(); ++k) {
    // A report without a step says only what the process waits for.
    if (clones[k].report.step == 0) continue;
    const uint64_t images = clones[k].report.images;
    // A new process of the clone counts from 0.
    if (images < clone_images_[k]) earlier_images_ += clone_images_[k];
    clone_images_[k] = images;
  }
}

std::optional<Progress> WorkerProgress::Combine(const std::vector<CloneState>& clones,
                                                std::string* waiting_for) {
  waiting_for->clear();
  const bool has_working_clone = std::any_of(clones.begin(), clones.end(), IsWorking);
  for (size_t k = 0; k < clones.size(); ++k) {
    if (clones[k].phase == CloneState::Phase::kLeft) continue;
    if (IsSpare(clones[k]) && (has_working_clone || clones[k].phase == CloneState::Phase::kDone)) {
      continue;
    }
    if (IsDown(clones[k]) || waiting_for->empty()) *waiting_for = WaitOf(clones, k);
  }
  CountImages(clones);
  std::optional<Progress> progress = Merge(clones);
  if (progress.has_value()) last_ = progress;
  if (waiting_for->empty() && !progress.has_value()) *waiting_for = "the first step";
  if (!waiting_for->empty()) return std::nullopt;
  return progress;
}

std::vector<std::string> WorkerProgress::Summary(absl::Duration time) const {
  if (!last_.has_value()) return {"this worker has computed no step"};
  const uint64_t images =
      std::accumulate(clone_images_.begin(), clone_images_.end(), earlier_images_);
  std::string steps = absl::StrCat("contributed up to step ", last_->step);
  if (last_->num_steps > 0) absl::StrAppend(&steps, " of ", last_->num_steps);
  absl::StrAppendFormat(&steps, " in %s: %d images, %.0f img/s",
                        absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(100))), images,
                        static_cast<double>(images) / absl::ToDoubleSeconds(time));
  std::string loss = absl::StrFormat("last loss %.3f", last_->loss);
  if (last_->accuracy.has_value())
    absl::StrAppendFormat(&loss, ", accuracy %.3f", *last_->accuracy);
  return {steps, loss};
}

}  // namespace pushpull
