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
constexpr absl::Duration kRateWindow = absl::Seconds(2);
// After this time, and after this many times the usual time of a step, no step is expected any
// more.
constexpr absl::Duration kSilence = absl::Seconds(10);
constexpr int kSilentSteps = 4;

}  // namespace

uint64_t ScalarInterval(uint64_t last_step) {
  constexpr uint64_t kPoints = 2000;
  constexpr uint64_t kEndless = 10;  // interval of a run without a last step
  if (last_step == 0) return kEndless;
  return std::max<uint64_t>(1, last_step / kPoints);
}

TrainingMonitor::TrainingMonitor(const JobSpec* job, Clock* clock)
    : job_(job), clock_(clock), names_({kTotalLoss, kAccuracy}), window_start_(clock->Now()) {}

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
      figures_.loss_sum += figures_.loss;
    }
  }
  if (now.count(kAccuracy) > 0) figures_.accuracy = now[kAccuracy].value();
  UpdateRates(samples);
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

void TrainingMonitor::UpdateRates(uint64_t samples) {
  ++window_steps_;
  window_samples_ += samples;
  last_step_ = clock_->Now();
  const absl::Duration elapsed = last_step_ - window_start_;
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
  TrainingFigures figures = figures_;
  LowerRates(&figures);
  return figures;
}

void TrainingMonitor::LowerRates(TrainingFigures* figures) const {
  const double before = figures->steps_per_second;
  const absl::Duration now = clock_->Now();
  if (before <= 0.0 || now - window_start_ <= kRateWindow) return;
  // The next step may be applied at once, so it counts for the window.
  double possible =
      static_cast<double>(window_steps_ + 1) / absl::ToDoubleSeconds(now - window_start_);
  const absl::Duration silence = std::max(kSilence, kSilentSteps * absl::Seconds(1 / before));
  if (now - last_step_ > silence) possible = 0.0;
  if (possible >= before) return;
  figures->steps_per_second = possible;
  figures->images_per_second *= possible / before;
}

}  // namespace pushpull
