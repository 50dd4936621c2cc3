// A loop without threads, for tests of what expects a ParallelLoop (kernels/parallel_loop.h).
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_SERIAL_LOOP_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_SERIAL_LOOP_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace pushpull {

// Calls body(i) for each i in [0, count), in ascending order on the calling thread.
inline void SerialLoop(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_SERIAL_LOOP_H_
