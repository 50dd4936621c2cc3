// How a function of the CPU is told to run its iterations on several threads.
#ifndef PUSHPULL_KERNELS_PARALLEL_LOOP_H_
#define PUSHPULL_KERNELS_PARALLEL_LOOP_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace pushpull {

// Calls body(i) for each i in [0, count), on any threads and in any order, and returns when all
// calls have returned.
using ParallelLoop = absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)> body)>;

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PARALLEL_LOOP_H_
