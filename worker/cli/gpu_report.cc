#include "worker/cli/gpu_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

GpuReport::GpuReport(std::unique_ptr<GpuMonitor> monitor, const Clock* clock)
    : monitor_(std::move(monitor)), clock_(clock) {}

const std::string& GpuReport::Text(const std::vector<std::string>& uuids) {
  if (monitor_ == nullptr) return text_;
  std::vector<std::string> gpus;
  for (const std::string& uuid : uuids) {
    if (!uuid.empty() && std::find(gpus.begin(), gpus.end(), uuid) == gpus.end()) {
      gpus.push_back(uuid);
    }
  }
  const absl::Duration now = clock_->Now();
  if (gpus == shown_ && now - read_at_ < kPeriod) return text_;
  read_at_ = now;
  shown_ = std::move(gpus);
  text_.clear();
  for (const std::string& gpu : shown_) {
    const absl::StatusOr<GpuFigures> figures = monitor_->Read(gpu);
    const std::string shown =
        figures.ok() ? FormatGpuFigures(*figures) : absl::StrCat(gpu, " does not answer");
    if (shown.empty()) continue;
    absl::StrAppend(&text_, text_.empty() ? "" : " | ", shown);
  }
  return text_;
}

}  // namespace pushpull
