// The parallel loop of the CPU kernels.
#ifndef PUSHPULL_KERNELS_CPU_KERNEL_LOOP_H_
#define PUSHPULL_KERNELS_CPU_KERNEL_LOOP_H_

#include <cstdint>
#include <type_traits>

#include "common/base/thread_pool.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/tile_registers.h"

namespace pushpull {

// As pool->ParallelFor(count, body), where body is called as body(i) or body(i, thread). Denormal
// numbers are zeros in it (flush_denormals.h). Rounding to Bfloat16 relies on that (vectors.h), and
// arithmetic with denormal numbers would be many times as slow. Tile registers are given back.
template <typename F>
void KernelLoop(ThreadPool* pool, int64_t count, const F& body) {
  pool->ParallelFor(count, [&](int64_t i, int thread) {
    const FlushDenormals flush;
    const TileUse tiles;
    if constexpr (std::is_invocable_v<const F&, int64_t, int>) {
      body(i, thread);
    } else {
      body(i);
    }
  });
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_KERNEL_LOOP_H_
