// CUDA, or its emulation on the CPU (PUSHPULL_CUDA_EMULATION). Everything in kernels/cuda is
// compiled once for each, in namespaces of their own: PUSHPULL_CUDA.
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
