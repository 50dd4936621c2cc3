#include "worker/train/worker_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

}  // namespace

std::optional<Progress> WorkerProgress::Combine(const std::vector<CloneState>& clones,
                                                std::string* waiting_for) const {
  Progress progress;
  waiting_for->clear();
  double accuracy = 0.0;
  int trained = 0;
  bool has_accuracy = true;
  for (size_t k = 0; k < clones.size(); ++k) {
    if (clones[k].phase == CloneState::Phase::kLeft) continue;
    const std::string wait = WaitOf(clones, k);
    if (IsDown(clones[k]) || waiting_for->empty()) *waiting_for = wait;
    const CloneReport& report = clones[k].report;
    if (report.step == 0) continue;
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
  if (waiting_for->empty() && trained == 0) *waiting_for = "the first step";
  if (!waiting_for->empty()) return std::nullopt;
  progress.loss /= trained;
  progress.staleness /= trained;
  if (has_accuracy) progress.accuracy = accuracy / trained;
  if (size_.num_examples > 0) {
    progress.epoch = static_cast<double>(progress.step) * static_cast<double>(size_.batch_size) /
                     static_cast<double>(size_.num_examples);
  }
  return progress;
}

}  // namespace pushpull
