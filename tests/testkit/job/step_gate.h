// Holds a clone inside a step until a test lets it continue.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_STEP_GATE_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_STEP_GATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "tests/testkit/job/toy_gradient_source.h"

namespace pushpull {

// Thread-safe. Must outlive the clones that use its hook. No wait takes longer than a minute, so
// that a failed test ends.
class StepGate {
 public:
  // Returns a gradient hook that blocks at data position `position` until Open is called.
  ToyGradientSource::Hook HookAt(uint64_t position) {
    return [this, position](uint64_t at, uint32_t, GradientResult*, absl::Span<float>) {
      if (at != position) return;
      absl::MutexLock lock(&mutex_);
      reached_ = true;
      EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&open_), kPatience))
          << "the test did not open the gate at position " << position;
    };
  }
  // Blocks until a clone is inside that step. Returns false after a minute; the test has to open
  // the gate even then.
  [[nodiscard]] bool AwaitReached() {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&reached_), kPatience);
  }
  void Open() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }

 private:
  static constexpr absl::Duration kPatience = absl::Minutes(1);

  absl::Mutex mutex_;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_STEP_GATE_H_
