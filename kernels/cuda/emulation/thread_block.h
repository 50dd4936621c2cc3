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
// What it cannot find: blocks run one after another, and __threadfence does nothing. So each block
// sees all that earlier ones have written, and a missing fence between blocks, or a block that
// waits for one which a GPU would run at the same time, is not noticed.
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

// Three numbers in one: x has 32 bits, y and z have 16, more than which CUDA does not allow either.
inline uint64_t Pack(const Dim3& d) {
  return d.x | static_cast<uint64_t>(d.y) << 32 | static_cast<uint64_t>(d.z) << 48;
}
inline Dim3 Unpack(uint64_t packed) {
  return {static_cast<unsigned>(packed), static_cast<unsigned>(packed >> 32 & 0xffff),
          static_cast<unsigned>(packed >> 48)};
}

// Sets the order for the grids that the calling thread of the host runs.
enum class ThreadOrder { kForward, kBackward, kShuffled };
void SetThreadOrder(ThreadOrder order);

// Whether accesses to shared memory are checked in these grids. Only tests of the emulation switch
// it off, which run kernels with races on purpose.
enum class AccessChecks { kOn, kOff };
void SetAccessChecks(AccessChecks checks);

// Calls `thread` once for each thread of the grid and blocks until all have ended. `kernel` is the
// name in messages. A block has 1 to 1024 threads with at least 190 KiB of stack each.
void RunGrid(const char* kernel, Dim3 grid, Dim3 block, size_t shared_bytes,
             const std::function<void()>& thread);

// The functions below may only be called by emulated threads.
//
// CUDA's threadIdx, blockIdx, blockDim and gridDim of the running emulated thread, and the number
// of its lane, from 0 to 31. None of them changes while the thread runs. [[gnu::const]] says so,
// and the compiler then asks only once; it would not if the functions returned a struct.
[[gnu::const]] uint64_t PackedThreadIndex();
[[gnu::const]] uint64_t PackedBlockIndex();
[[gnu::const]] uint64_t PackedBlockSize();
[[gnu::const]] uint64_t PackedGridSize();
[[gnu::const]] unsigned LaneId();

// The shared memory of the running block, 16-byte aligned.
unsigned char* SharedMemory();

// Barriers for all threads of the block, and for all lanes of the warp.
void SyncThreads();
void SyncWarp();
// All lanes of the warp must call. Returns the value that lane `source_lane` passed, or the
// caller's own value if the warp has no such lane.
uint64_t ShuffleBits(uint64_t value, unsigned source_lane);
// What a lane passes to the others in one warp operation. It need not use all of them.
struct LaneValues {
  uint64_t values[3] = {};
};
// All lanes of the warp must call. Returns what the 32 lanes passed, by lane, with zeros for lanes
// that the warp does not have. The result is valid until the lane's next warp operation.
const LaneValues* GatherWarp(const LaneValues& own);
// Ends the process unless the mask of a warp operation has all lanes of the warp, or the address is
// a multiple of `bytes`.
void CheckMask(unsigned mask);
void CheckAlignment(const void* address, size_t bytes);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_THREAD_BLOCK_H_
