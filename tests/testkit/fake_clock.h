// A clock that only advances when a test advances it or somebody sleeps.
#ifndef PUSHPULL_TESTS_TESTKIT_FAKE_CLOCK_H_
#define PUSHPULL_TESTS_TESTKIT_FAKE_CLOCK_H_

#include "absl/time/time.h"

#include "common/base/clock.h"

namespace pushpull {

class FakeClock final : public Clock {
 public:
  absl::Duration Now() const override { return now_; }
  void Sleep(absl::Duration duration) override { Advance(duration); }
  void Advance(absl::Duration duration) { now_ += duration; }

 private:
  absl::Duration now_ = absl::Seconds(1000);
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_FAKE_CLOCK_H_
