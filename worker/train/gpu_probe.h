// The figures of the one GPU that a clone computes on, for its heartbeats.
#ifndef PUSHPULL_WORKER_TRAIN_GPU_PROBE_H_
#define PUSHPULL_WORKER_TRAIN_GPU_PROBE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/gpu_monitor.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class GpuProbe {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // gpu: a UUID, as GpuMonitor::Read takes it; name: what people call it. clock must outlive the
  // object.
  GpuProbe(std::unique_ptr<GpuMonitor> monitor, std::string gpu, std::string name,
           const Clock* clock);

  // Not older than kPeriod. What the GPU does not tell is 0; nothing while it does not answer.
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
