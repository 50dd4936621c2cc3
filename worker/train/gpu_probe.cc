// Tested by tests/worker/train/clone_figures_test.cc.
#include "worker/train/gpu_probe.h"

#include <utility>

namespace pushpull {

GpuProbe::GpuProbe(std::unique_ptr<GpuMonitor> monitor, std::string gpu, std::string name,
                   const Clock* clock)
    : gpu_(std::move(gpu)), name_(std::move(name)), clock_(clock), monitor_(std::move(monitor)) {}

std::optional<ps::GpuFigures> GpuProbe::Read() {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Now();
  if (now - read_at_ < kPeriod) return figures_;
  read_at_ = now;
  figures_.reset();
  const absl::StatusOr<GpuFigures> read = monitor_->Read(gpu_);
  if (!read.ok()) return figures_;
  ps::GpuFigures& figures = figures_.emplace();
  figures.set_name(name_);
  figures.set_utilization(read->utilization_percent.value_or(0) / 100.0);
  figures.set_memory_used_bytes(read->memory_used_bytes.value_or(0));
  figures.set_memory_total_bytes(read->memory_total_bytes.value_or(0));
  return figures_;
}

}  // namespace pushpull
