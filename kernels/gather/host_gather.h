// Runs gathers on the CPU.
#ifndef PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_
#define PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "kernels/gather/gather.h"

namespace pushpull {

// Computes all elements. parallel_for(count, body) runs body(0) ... body(count - 1), on any
// threads, and returns when all are done. T is float, double or Bfloat16.
template <typename T>
void RunOnHost(
    const Gather<T>& gather,
    absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)> body)> parallel_for);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_
