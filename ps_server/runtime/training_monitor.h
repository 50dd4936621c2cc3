// TrainingMonitor turns applied steps into TensorBoard scalars and into the figures of the
// progress line, the metrics and the status page.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_TRAINING_MONITOR_H_
#define PUSHPULL_PS_SERVER_RUNTIME_TRAINING_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/rate_meter.h"
#include "common/trace/event_writer.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/monitoring/training_figures.h"
#include "ps_server/runtime/job_spec.h"

namespace pushpull {

// Thread-safe.
class TrainingMonitor {
 public:
  // Names of metrics that one server keeps. Every clone can send new ones with each contribution.
  static constexpr size_t kMaxMetricNames = 1000;

  // Scalars are written at steps that are multiples of ScalarInterval; each is the mean since the
  // last write. `job` and `clock` must outlive the monitor.
  TrainingMonitor(const JobSpec* job, Clock* clock);

  // Writes scalars to `events` from now on, which must outlive the monitor. Before the first
  // call, and if `events` is null, no scalars are written.
  void WriteTo(EventWriter* events);

  // Metrics whose names would be more than kMaxMetricNames are left out of the scalars. The first
  // one is logged, with the clone that sent it.
  void StepApplied(const coordinator_action::StepApplied& step);
  // Returns the present figures. The rates are measured from the first step since the start: the
  // time before it includes the wait for clones. While no step is applied the rates fall
  // (RateMeter::At).
  TrainingFigures Figures() const;
  // Returns the losses of the steps that were applied since the last call.
  LossSum TakeLosses();

 private:
  // A mean weighted by samples.
  struct Mean {
    double sum = 0.0;
    double weight = 0.0;
    void Add(double value, double w) {
      sum += value * w;
      weight += w;
    }
    double value() const { return weight > 0.0 ? sum / weight : 0.0; }
  };

  void WriteScalars(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the metric is one of those that are kept; a new one is until there are too
  // many.
  bool MayKeep(const std::string& name, uint32_t worker_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobSpec* const job_;
  Clock* const clock_;

  mutable absl::Mutex mutex_;
  EventWriter* events_ ABSL_GUARDED_BY(mutex_) = nullptr;
  TrainingFigures figures_ ABSL_GUARDED_BY(mutex_);      // without the rates
  LossSum losses_ ABSL_GUARDED_BY(mutex_);               // since the last TakeLosses
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);  // of all metrics that are kept
  bool has_left_out_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Mean> metrics_ ABSL_GUARDED_BY(mutex_);  // since the last write
  std::map<uint32_t, Mean> clone_loss_ ABSL_GUARDED_BY(mutex_);
  Mean staleness_ ABSL_GUARDED_BY(mutex_);
  RateMeter rate_ ABSL_GUARDED_BY(mutex_) = RateMeter(absl::Seconds(2));  // of steps and images
};

// Returns the number of steps between two points that TrainingMonitor writes: last_step / 2,000
// rounded down, but at least 1, and 10 for a run without a last step (0).
uint64_t ScalarInterval(uint64_t last_step);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_TRAINING_MONITOR_H_
