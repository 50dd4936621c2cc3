// Measures how often something happens, such as steps and their images, over windows of a few
// seconds.
#ifndef PUSHPULL_COMMON_BASE_RATE_METER_H_
#define PUSHPULL_COMMON_BASE_RATE_METER_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace pushpull {

// A copyable value; not thread-safe. All times are of one steady clock.
class RateMeter {
 public:
  struct Rates {
    double events_per_second = 0.0;
    double amount_per_second = 0.0;
  };

  // A window ends with the first event that is at least `window` after its beginning.
  explicit RateMeter(absl::Duration window) : window_(window) {}

  // Begins the first window. Otherwise the first event begins it and does not count: the time
  // before that event is not known.
  void Start(absl::Duration now) { window_start_ = now; }
  // Counts an event, such as a step, with its amount, such as the step's images.
  void Add(absl::Duration now, uint64_t amount);
  // Returns the rates of the last complete window. While no event comes they fall to what is still
  // possible in the present window. They are 0 before the first window is complete, and once no
  // event has come for 10 s and for four times the usual time between two events.
  Rates At(absl::Duration now) const;

 private:
  absl::Duration window_;
  std::optional<absl::Duration> window_start_;
  uint64_t window_events_ = 0;
  uint64_t window_amount_ = 0;
  absl::Duration last_event_;
  Rates rates_;  // of the last complete window
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_RATE_METER_H_
