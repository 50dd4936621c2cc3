// Includes CUDA, or its emulation on the CPU if PUSHPULL_CUDA_EMULATION is defined. All code in
// kernels/cuda can be compiled for both; the macro PUSHPULL_CUDA is the namespace, which differs so
// that both can be linked into one program.
#ifndef PUSHPULL_KERNELS_CUDA_PLATFORM_H_
#define PUSHPULL_KERNELS_CUDA_PLATFORM_H_

#ifdef PUSHPULL_CUDA_EMULATION

#include "kernels/cuda/emulation/device_functions.h"
#include "kernels/cuda/emulation/runtime.h"
#define PUSHPULL_CUDA emulated_cuda

#else

#include <cuda_runtime.h>
#define PUSHPULL_CUDA cuda

#endif

#endif  // PUSHPULL_KERNELS_CUDA_PLATFORM_H_
