// Reads utilisation and memory use of the GPU that a clone computes on, for its heartbeats.
#ifndef PUSHPULL_WORKER_TRAIN_GPU_PROBE_H_
#define PUSHPULL_WORKER_TRAIN_GPU_PROBE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "protos/parameter_server.pb.h"
#include "worker/model/gpu_monitor.h"

namespace pushpull {

// Thread-safe.
class GpuProbe {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // `gpu` is a UUID, as GpuMonitor::Read takes it. `name` is shown to people. `clock` must outlive
  // the object.
  GpuProbe(std::unique_ptr<GpuMonitor> monitor, std::string gpu, std::string name,
           const Clock* clock);

  // Returns figures that are at most kPeriod old. A figure that the GPU does not report is 0.
  // Returns nullopt if the GPU did not answer.
  std::optional<ps::GpuFigures> Read();

 private:
  const std::string gpu_;
  const std::string name_;
  const Clock* const clock_;
  absl::Mutex mutex_;
  const std::unique_ptr<GpuMonitor> monitor_ ABSL_PT_GUARDED_BY(mutex_);
  absl::Duration read_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  std::optional<ps::GpuFigures> figures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_GPU_PROBE_H_
