// A steady clock that tests can replace. The protocol never reads the wall clock, because leases
// and deadlines must not move when somebody sets the date.
#ifndef PUSHPULL_COMMON_BASE_CLOCK_H_
#define PUSHPULL_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace pushpull {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the time since a fixed point that is arbitrary for each process. Never goes back.
  virtual absl::Duration Now() const = 0;
  // Blocks the calling thread for `duration`.
  virtual void Sleep(absl::Duration duration) = 0;
};

// The machine's monotonic clock, std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  absl::Duration Now() const override;
  void Sleep(absl::Duration duration) override;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_CLOCK_H_
