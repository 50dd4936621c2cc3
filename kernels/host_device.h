// PUSHPULL_HOST_DEVICE marks functions that are compiled for the host and for the GPU.
#ifndef PUSHPULL_KERNELS_HOST_DEVICE_H_
#define PUSHPULL_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define PUSHPULL_HOST_DEVICE __host__ __device__
#else
#define PUSHPULL_HOST_DEVICE
#endif

#endif  // PUSHPULL_KERNELS_HOST_DEVICE_H_
