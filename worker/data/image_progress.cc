#include "worker/data/image_progress.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(10);

}  // namespace

ImageProgress::ImageProgress(std::string what, int64_t total, Clock* clock, ReportFn report)
    : what_(std::move(what)),
      total_(total),
      clock_(clock),
      report_(std::move(report)),
      last_report_(clock->Now()) {}

void ImageProgress::Count() {
  if (!report_) return;
  absl::MutexLock lock(&mutex_);
  const int64_t done = done_++;
  const absl::Duration now = clock_->Now();
  if (now - last_report_ < kPeriod) return;
  last_report_ = now;
  report_(absl::StrCat(what_, ": ", done, total_ > 0 ? absl::StrCat(" of ", total_) : ""));
}

}  // namespace pushpull
