// Holds a clone within a step until a test lets it go on.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_STEP_GATE_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_STEP_GATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "tests/testkit/job/toy_gradient_source.h"

namespace pushpull {

// Thread-safe. Must outlive the clones that have its hook. No wait takes longer than a minute, so a
// test that has failed ends.
class StepGate {
 public:
  // A gradient hook that blocks at data position `position` until Open.
  ToyGradientSource::Hook HookAt(uint64_t position) {
    return [this, position](uint64_t at, uint32_t, GradientResult*, absl::Span<float>) {
      if (at != position) return;
      absl::MutexLock lock(&mutex_);
      reached_ = true;
      EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&open_), kPatience))
          << "nobody opened the gate at position " << position;
    };
  }
  // Blocks until a clone is within that step. False after a minute: a test that goes on opens the
  // gate before it ends.
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
