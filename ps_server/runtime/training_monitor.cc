#include "ps_server/runtime/training_monitor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr char kTotalLoss[] = "Loss/total_loss";
constexpr char kAccuracy[] = "accuracy";

}  // namespace

uint64_t ScalarInterval(uint64_t last_step) {
  constexpr uint64_t kPoints = 2000;
  constexpr uint64_t kEndless = 10;  // interval of a run without a last step
  if (last_step == 0) return kEndless;
  return std::max<uint64_t>(1, last_step / kPoints);
}

TrainingMonitor::TrainingMonitor(const JobSpec* job, Clock* clock)
    : job_(job), clock_(clock), names_({kTotalLoss, kAccuracy}) {}

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
      if (MayKeep(metric.name(), part.worker_id)) {
        metrics_[metric.name()].Add(metric.value(), weight);
      }
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
      losses_.Add({1, figures_.loss});
    }
  }
  if (now.count(kAccuracy) > 0) figures_.accuracy = now[kAccuracy].value();
  rate_.Add(clock_->Now(), samples);
  const bool is_due = step.step % ScalarInterval(step.last_step) == 0;
  if (events_ != nullptr && is_due) WriteScalars(step.step);
}

bool TrainingMonitor::MayKeep(const std::string& name, uint32_t worker_id) {
  if (names_.count(name) > 0) return true;
  if (names_.size() < kMaxMetricNames) return names_.insert(name).second;
  LOG_IF(WARNING, !std::exchange(has_left_out_, true))
      << "clone " << worker_id << " reports a metric \"" << name << "\", but this job has "
      << kMaxMetricNames << " names of metrics already, so this one and further ones are left out "
      << "of the event file: a metric should have the same name in every step";
  return false;
}

void TrainingMonitor::WriteScalars(uint64_t step) {
  std::vector<ScalarSummary> scalars;
  for (const auto& [name, mean] : metrics_) scalars.push_back({name, mean.value()});
  for (const auto& [replica, mean] : clone_loss_) {
    scalars.push_back({absl::StrCat("clone_loss/", replica), mean.value()});
  }
  scalars.push_back({"learning_rate", figures_.learning_rate});
  scalars.push_back({"staleness", staleness_.value()});
  const RateMeter::Rates rates = rate_.At(clock_->Now());
  if (rates.events_per_second > 0.0) {
    scalars.push_back({"global_step/sec", rates.events_per_second});
    scalars.push_back({"images/sec", rates.amount_per_second});
  }
  events_->AddScalars(static_cast<int64_t>(step), scalars);
  metrics_.clear();
  clone_loss_.clear();
  staleness_ = {};
}

TrainingFigures TrainingMonitor::Figures() const {
  absl::MutexLock lock(&mutex_);
  TrainingFigures figures = figures_;
  const RateMeter::Rates rates = rate_.At(clock_->Now());
  figures.steps_per_second = rates.events_per_second;
  figures.images_per_second = rates.amount_per_second;
  return figures;
}

LossSum TrainingMonitor::TakeLosses() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(losses_, {});
}

}  // namespace pushpull
