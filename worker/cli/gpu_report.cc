#include "worker/cli/gpu_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

GpuReport::GpuReport(const std::vector<std::string>& gpus, std::unique_ptr<GpuMonitor> monitor,
                     const Clock* clock)
    : monitor_(std::move(monitor)), clock_(clock) {
  for (const std::string& gpu : gpus) {
    if (std::find(gpus_.begin(), gpus_.end(), gpu) == gpus_.end()) gpus_.push_back(gpu);
  }
}

const std::string& GpuReport::Text() {
  const absl::Duration now = clock_->Now();
  if (monitor_ == nullptr || now - read_at_ < kPeriod) return text_;
  read_at_ = now;
  text_.clear();
  for (const std::string& gpu : gpus_) {
    const absl::StatusOr<GpuFigures> figures = monitor_->Read(gpu);
    const std::string shown =
        figures.ok() ? FormatGpuFigures(*figures) : absl::StrCat("GPU ", gpu, " does not answer");
    if (shown.empty()) continue;
    absl::StrAppend(&text_, text_.empty() ? "" : " | ", shown);
  }
  return text_;
}

}  // namespace pushpull
