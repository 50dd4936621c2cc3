// GpuReport shows the utilization and memory of a worker's GPUs in the progress line.
#ifndef PUSHPULL_WORKER_CLI_GPU_REPORT_H_
#define PUSHPULL_WORKER_CLI_GPU_REPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/base/clock.h"
#include "worker/model/gpu_monitor.h"

namespace pushpull {

// Not thread-safe.
class GpuReport {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // `monitor` may be null; then Text is always empty. `clock` must outlive the object.
  GpuReport(std::unique_ptr<GpuMonitor> monitor, const Clock* clock);

  // Returns "GPU 97 % 71.2/139.8 GiB 54 C | GPU 95 % ..." in the order of `uuids`. A UUID that
  // appears several times is shown once; empty ones are left out. The values are at most kPeriod
  // old. The text says so if a GPU does not answer. Empty: there is nothing to show. The reference
  // is valid until the next call.
  const std::string& Text(const std::vector<std::string>& uuids);

 private:
  const std::unique_ptr<GpuMonitor> monitor_;
  const Clock* const clock_;
  std::vector<std::string> shown_;  // the GPUs of text_
  absl::Duration read_at_ = -absl::InfiniteDuration();
  std::string text_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLI_GPU_REPORT_H_
