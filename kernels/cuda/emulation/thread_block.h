// Runs the threads of a CUDA grid on the CPU, so that kernels are tested on machines without a GPU.
//
// Blocks run one after the other. The threads of a block are fibers: one runs until it reaches a
// barrier or a warp operation, then the next. What a real GPU leaves undefined ends the process
// with the kernel's name: a barrier that some threads miss, a warp operation without all lanes.
// Shared memory is filled with NaN patterns before each block. With ThreadOrder::kBackward the
// threads run from the last to the first: a result that differs shows a missing barrier.
//
// Thread rule: one grid at a time per thread of the host.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_THREAD_BLOCK_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_THREAD_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pushpull::emulation {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  Dim3() = default;
  // Implicit, as CUDA's dim3 is.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum class ThreadOrder { kForward, kBackward };
void SetThreadOrder(ThreadOrder order);

// What the running thread knows of its place.
struct ThreadPlace {
  Dim3 thread_index{0, 0, 0}, block_index{0, 0, 0}, block_size, grid_size;
};
const ThreadPlace& CurrentPlace();

// Calls `thread` once per thread of the grid. `kernel` names it in messages.
void RunGrid(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
             const std::function<void()>& thread);

// Of the running block; 16-byte aligned.
unsigned char* SharedMemory();

void SyncThreads();
void SyncWarp();
// All lanes of the warp give a value; returns the one of `source_lane`, or the own one where the
// warp has no such lane.
uint64_t ShuffleBits(uint64_t value, unsigned source_lane);
// values[l] receives lane l's value, 0 where there is no such lane.
void GatherWarp(uint64_t value, uint64_t values[32]);
unsigned LaneId();

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_THREAD_BLOCK_H_
