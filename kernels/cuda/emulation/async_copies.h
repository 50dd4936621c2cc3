// The copies that emulated threads have started and not yet waited for
// (kernels/cuda/async_copy.cuh). They are made as late as they may: when the thread waits.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_ASYNC_COPIES_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_ASYNC_COPIES_H_

#include <vector>

namespace pushpull::emulation {

struct AsyncCopy {
  const void* from = nullptr;  // null: zeros
  void* to = nullptr;
};

// Called by emulated threads, each for itself.
void StartAsyncCopy(const AsyncCopy& copy);
void CloseAsyncGroup();
// Returns the copies of all closed groups but the newest `newest`, in order, and forgets them.
std::vector<AsyncCopy> TakeAsyncCopies(int newest);

// Called before a block runs, and after it, with the name for messages. A copy that a thread has
// started and not waited for ends the process: on a GPU it could still be writing when the shared
// memory belongs to another block.
void BeginAsyncCopies();
void EndAsyncCopies(const char* kernel);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_ASYNC_COPIES_H_
