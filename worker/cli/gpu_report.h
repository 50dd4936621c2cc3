// How busy and how full the GPUs of a worker are, for the progress line.
#ifndef PUSHPULL_WORKER_CLI_GPU_REPORT_H_
#define PUSHPULL_WORKER_CLI_GPU_REPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/gpu_monitor.h"

namespace pushpull {

// Not thread-safe. Keeps a pointer to `clock`.
class GpuReport {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // `gpus` as in --gpus; one that several clones share is shown once. monitor null: nothing to
  // show.
  GpuReport(const std::vector<std::string>& gpus, std::unique_ptr<GpuMonitor> monitor,
            const Clock* clock);

  // "GPU 97 % 71.2/139.8 GiB 54 C | GPU 95 % ..." in the order of --gpus, not older than kPeriod;
  // one that does not answer says so. Empty: nothing to show.
  const std::string& Text();

 private:
  std::vector<std::string> gpus_;
  const std::unique_ptr<GpuMonitor> monitor_;
  const Clock* const clock_;
  absl::Duration read_at_ = -absl::InfiniteDuration();
  std::string text_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLI_GPU_REPORT_H_
