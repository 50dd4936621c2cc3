// The product of the tensor cores, on the CPU. It works on registers only, so it is a function of
// the emulation, whose accesses are not observed (shared_accesses.h): that saves time.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_

namespace pushpull::emulation {

// MultiplyAdd of matrix_unit.cuh. All lanes of the warp must call.
void MultiplyAdd(const unsigned a[4], const unsigned b[2], float d[4]);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_
