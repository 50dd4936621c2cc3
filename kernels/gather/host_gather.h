// Runs gathers on the CPU.
#ifndef PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_
#define PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_

#include <cstdint>

#include "kernels/gather/gather.h"
#include "kernels/parallel_loop.h"

namespace pushpull {

// Computes all elements. T is float, double or Bfloat16.
template <typename T>
void RunOnHost(const Gather<T>& gather, ParallelLoop parallel_for);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_GATHER_HOST_GATHER_H_
