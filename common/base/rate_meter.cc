#include "common/base/rate_meter.h"

#include <algorithm>

namespace pushpull {
namespace {

// After this time, and after this many times the usual time between two events, none is expected
// any more.
constexpr absl::Duration kSilence = absl::Seconds(10);
constexpr int kSilentEvents = 4;

}  // namespace

void RateMeter::Add(absl::Duration now, uint64_t amount) {
  last_event_ = now;
  if (!window_start_.has_value()) return Start(now);
  ++window_events_;
  window_amount_ += amount;
  const absl::Duration elapsed = now - *window_start_;
  if (elapsed < window_) return;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  rates_.events_per_second = static_cast<double>(window_events_) / seconds;
  rates_.amount_per_second = static_cast<double>(window_amount_) / seconds;
  window_start_ = now;
  window_events_ = 0;
  window_amount_ = 0;
}

RateMeter::Rates RateMeter::At(absl::Duration now) const {
  const double before = rates_.events_per_second;
  if (before <= 0.0 || now - *window_start_ <= window_) return rates_;
  const absl::Duration silence = std::max(kSilence, kSilentEvents * absl::Seconds(1 / before));
  if (now - last_event_ > silence) return {};
  // The next event may come at once, so it counts for the window.
  const double possible =
      static_cast<double>(window_events_ + 1) / absl::ToDoubleSeconds(now - *window_start_);
  if (possible >= before) return rates_;
  return {possible, rates_.amount_per_second * (possible / before)};
}

}  // namespace pushpull
