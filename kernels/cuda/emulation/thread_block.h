// Runs the threads of a CUDA grid on the CPU, so that kernels can be tested without a GPU.
//
// Blocks run one after another. The threads of a block are fibers: each runs until it reaches a
// barrier or a warp operation, then the next one runs. To find errors that a real GPU hides:
// - A barrier that some threads miss, or a warp operation without all lanes, which CUDA leaves
//   undefined, ends the process with a message that names the kernel. So do a mask of a warp
//   operation that leaves out a lane of the warp, and an access to a vector at an address that is
//   no multiple of its size.
// - Each access to shared memory is checked (race_detector.h). The process ends if two threads
//   access the same bytes, one of them writes, and no barrier is between them, or if an access is
//   outside of shared memory, within 4 KiB of it. In builds with a sanitizer, accesses are not
//   observed (shared_accesses.h).
// - Shared memory is filled with NaN patterns before each block.
// - With ThreadOrder::kBackward the threads of a block run from the last to the first, and with
//   kShuffled in an order that is different in each block, but the same in each run of the program.
//   The blocks of a grid run in such an order, too. A result that differs shows that a barrier is
//   missing, also for device memory, where races are not looked for, or that it depends on which
//   block is the last.
//
// Thread rule: a thread of the host runs one grid at a time; several threads may each run one.
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

// Sets the order for the grids that the calling thread of the host runs.
enum class ThreadOrder { kForward, kBackward, kShuffled };
void SetThreadOrder(ThreadOrder order);

// Whether accesses to shared memory are checked in these grids. Only tests of the emulation switch
// it off, which run kernels with races on purpose.
enum class AccessChecks { kOn, kOff };
void SetAccessChecks(AccessChecks checks);

// CUDA's threadIdx, blockIdx, blockDim and gridDim of the running emulated thread.
struct ThreadPlace {
  Dim3 thread_index{0, 0, 0}, block_index{0, 0, 0}, block_size, grid_size;
};
const ThreadPlace& CurrentPlace();

// Calls `thread` once for each thread of the grid and blocks until all have ended. `kernel` is the
// name in messages. A block has 1 to 1024 threads with 256 KiB of stack each.
void RunGrid(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
             const std::function<void()>& thread);

// The functions below may only be called by emulated threads.
//
// The shared memory of the running block, 16-byte aligned.
unsigned char* SharedMemory();

// Barriers for all threads of the block, and for all lanes of the warp.
void SyncThreads();
void SyncWarp();
// All lanes of the warp must call. Returns the value that lane `source_lane` passed, or the
// caller's own value if the warp has no such lane.
uint64_t ShuffleBits(uint64_t value, unsigned source_lane);
// All lanes of the warp must call. values[l] becomes the value that lane l passed, or 0 if the warp
// has no such lane.
void GatherWarp(uint64_t value, uint64_t values[32]);
unsigned LaneId();  // 0 to 31
// Ends the process unless the mask of a warp operation has all lanes of the warp, or the address is
// a multiple of `bytes`.
void CheckMask(unsigned mask);
void CheckAlignment(const void* address, size_t bytes);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_THREAD_BLOCK_H_
