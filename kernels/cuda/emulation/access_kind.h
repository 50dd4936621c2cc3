// How a thread accesses memory.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_ACCESS_KIND_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_ACCESS_KIND_H_

namespace pushpull::emulation {

enum class AccessKind { kRead, kWrite, kAtomic };

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_ACCESS_KIND_H_
