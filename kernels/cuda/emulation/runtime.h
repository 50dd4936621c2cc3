// The part of CUDA's runtime interface that this project calls, on the CPU. Only tests use it; they
// can inject faults. CUDA's documentation describes the functions; the differences are:
//
// - Device memory and page-locked memory are host memory between guard zones. A write to a zone,
//   or to memory that has been freed, ends the process with a message: when a block is freed, when
//   SetEmulatedMachine is called or at the end of the process (guarded_memory.h).
// - Work on a stream runs at once, within the call, so waits return at once. On a machine that
//   `defers` it runs as late as it may: when somebody waits for it. On a machine with a `seed` the
//   work of all streams runs in an order drawn by chance (work_queues.h).
// - While a stream is under capture, its work is recorded and runs when the graph is launched.
//
// Thread rule: several threads may allocate and free device memory. Everything else is for one
// thread at a time.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_RUNTIME_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/emulation/work_queues.h"

namespace pushpull::emulated_cuda {

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorInvalidPtx = 218,
  cudaErrorJitCompilerNotFound = 221,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorJitCompilationDisabled = 223,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorLaunchFailure = 719,
  cudaErrorSystemNotReady = 802,
  cudaErrorStreamCaptureInvalidated = 901,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaDeviceScheduleBlockingSync = 4;

struct EmulatedGraph {
  std::vector<std::function<void()>> nodes;
};
struct EmulatedStream {
  int device = 0;
  EmulatedGraph* capture = nullptr;
  std::shared_ptr<EmulatedWork> work = std::make_shared<EmulatedWork>();
};
struct EmulatedEvent {
  int device = 0;
  int64_t nanoseconds = 0;
  // The place where it was recorded; null: it has not been.
  std::shared_ptr<EmulatedWork> work;
  int64_t place = 0;
};
using cudaStream_t = EmulatedStream*;
using cudaEvent_t = EmulatedEvent*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int multiProcessorCount;
  int major, minor;
  size_t sharedMemPerBlockOptin;
  struct {
    char bytes[16];
  } uuid;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();  // waits for the streams of all devices
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
struct cudaFuncAttributes {};
// Answers as a program would that has code for kEmulatedCodeFrom and later, or as the machine says.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaGetLastError();

// Runs `work` on the stream: now, later if the machine defers or has a seed, or each time the graph
// is launched if the stream is under capture. It does nothing once the device has failed.
void Enqueue(cudaStream_t stream, std::function<void()> work);
// The same for a kernel. If the stream belongs to another device than that of the calling thread,
// cudaGetLastError returns cudaErrorInvalidResourceHandle.
void EnqueueKernel(cudaStream_t stream, std::function<void()> work);

}  // namespace pushpull::emulated_cuda

// For stand-ins of NVIDIA's libraries, which the program loads while it runs: runs work(argument)
// on a cudaStream_t, as Enqueue does, and calls destroy(argument) when no stream or graph has it.
extern "C" void PushpullEmulatedEnqueue(void* stream, void (*work)(void*), void* argument,
                                        void (*destroy)(void*));

namespace pushpull::emulated_cuda {

inline constexpr int kEmulatedCodeFrom = 80;  // a compute capability, times 10

// Describes the emulated machine.
struct EmulatedMachine {
  int device_count = 1;
  cudaError_t start_error = cudaSuccess;  // of cudaGetDeviceCount, if it is another
  int silent_device = -1;                 // cudaGetDeviceProperties fails for it
  int driver_version = 13000;             // below 13000, the version of the runtime, it is too old
  size_t memory_bytes = size_t{1} << 40;  // of the device memory of all devices together
  // Another process takes this much of the memory at the next cudaMalloc, and keeps it until
  // SetEmulatedMachine is called.
  size_t taken_at_allocation = 0;
  // Counts down with each piece of work. At 0 the device has failed: work is skipped and the calls
  // return cudaErrorLaunchFailure. Negative: the device never fails.
  int64_t launches_until_failure = -1;
  int capability = 90;                   // the compute capability, times 10
  cudaError_t code_error = cudaSuccess;  // of cudaFuncGetAttributes, if it is another
  int multiprocessors = 4;
  bool defers = false;  // work on streams waits until somebody waits for it
  // Each call that queues work or waits runs some work of any stream, chosen by this seed.
  std::optional<uint32_t> seed = std::nullopt;
};
// Checks the memory and replaces the description. Memory that is allocated stays valid.
void SetEmulatedMachine(const EmulatedMachine& machine);
// The device memory that is allocated now, of all devices or of one.
size_t EmulatedAllocatedBytes();
size_t EmulatedAllocatedBytes(int device);

}  // namespace pushpull::emulated_cuda

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_RUNTIME_H_
