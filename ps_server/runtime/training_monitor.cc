#include "ps_server/runtime/training_monitor.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr char kTotalLoss[] = "Loss/total_loss";
constexpr char kAccuracy[] = "accuracy";
constexpr absl::Duration kRateWindow = absl::Seconds(2);

}  // namespace

uint64_t ScalarInterval(uint64_t last_step) {
  constexpr uint64_t kPoints = 2000;
  constexpr uint64_t kEndless = 10;  // interval of a run without a last step
  if (last_step == 0) return kEndless;
  return std::max<uint64_t>(1, last_step / kPoints);
}

TrainingMonitor::TrainingMonitor(const JobSpec* job, Clock* clock)
    : job_(job), clock_(clock), window_start_(clock->Now()) {}

void TrainingMonitor::WriteTo(EventWriter* events) {
  absl::MutexLock lock(&mutex_);
  events_ = events;
}

void TrainingMonitor::StepApplied(const coordinator_action::StepApplied& step) {
  absl::MutexLock lock(&mutex_);
  std::map<std::string, Mean> now;
  uint64_t samples = 0;
  for (const auto& part : step.parts) {
    samples += part.samples;
    const double weight = static_cast<double>(part.samples);
    for (const ps::Metric& metric : part.metrics) {
      now[metric.name()].Add(metric.value(), weight);
      metrics_[metric.name()].Add(metric.value(), weight);
      if (metric.name() != kTotalLoss) continue;
      clone_loss_[part.replica].Add(metric.value(), weight);
      if (part.samples > 0) figures_.clone_loss[part.worker_id] = metric.value();
    }
  }
  staleness_.Add(static_cast<double>(step.staleness), 1.0);
  figures_.step = step.step;
  figures_.staleness = step.staleness;
  figures_.learning_rate = job_->LearningRateAt(step.step - 1);
  figures_.images += samples;
  if (now.count(kTotalLoss) > 0) {
    figures_.loss = now[kTotalLoss].value();
    if (samples > 0 && std::isfinite(figures_.loss)) {
      ++figures_.losses;
      figures_.loss_sum += figures_.loss;
    }
  }
  if (now.count(kAccuracy) > 0) figures_.accuracy = now[kAccuracy].value();
  UpdateRates(samples);
  const bool is_due = step.step % ScalarInterval(step.last_step) == 0;
  if (events_ != nullptr && is_due) WriteScalars(step.step);
}

void TrainingMonitor::UpdateRates(uint64_t samples) {
  ++window_steps_;
  window_samples_ += samples;
  const absl::Duration elapsed = clock_->Now() - window_start_;
  if (elapsed < kRateWindow) return;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  figures_.steps_per_second = window_steps_ / seconds;
  figures_.images_per_second = window_samples_ / seconds;
  window_start_ += elapsed;
  window_steps_ = 0;
  window_samples_ = 0;
}

void TrainingMonitor::WriteScalars(uint64_t step) {
  std::vector<ScalarSummary> scalars;
  for (const auto& [name, mean] : metrics_) scalars.push_back({name, mean.value()});
  for (const auto& [replica, mean] : clone_loss_) {
    scalars.push_back({absl::StrCat("clone_loss/", replica), mean.value()});
  }
  scalars.push_back({"learning_rate", figures_.learning_rate});
  scalars.push_back({"staleness", staleness_.value()});
  if (figures_.steps_per_second > 0.0) {
    scalars.push_back({"global_step/sec", figures_.steps_per_second});
    scalars.push_back({"images/sec", figures_.images_per_second});
  }
  events_->AddScalars(static_cast<int64_t>(step), scalars);
  metrics_.clear();
  clone_loss_.clear();
  staleness_ = {};
}

TrainingFigures TrainingMonitor::Figures() const {
  absl::MutexLock lock(&mutex_);
  return figures_;
}

}  // namespace pushpull
