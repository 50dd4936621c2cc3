// Tested by tests/common/wire/grpc/steady_timers_test.cc.
#include "common/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace pushpull {

absl::Duration SteadyClock::Now() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void SteadyClock::Sleep(absl::Duration duration) { absl::SleepFor(duration); }

}  // namespace pushpull
