#include "kernels/cuda/emulation/runtime.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "glog/logging.h"

namespace pushpull::emulated_cuda {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xfb;  // read as float or bfloat16, a huge negative number

struct Machine {
  std::mutex mutex;
  EmulatedMachine state;
  size_t allocated = 0;
  std::map<void*, size_t> blocks;
};

Machine& machine() {
  static Machine* const the_machine = new Machine;
  return *the_machine;
}

// The answer of most calls: once the device has failed they all return the same error.
cudaError_t Health() {
  const EmulatedMachine& state = machine().state;
  return state.launches_until_failure == 0 ? cudaErrorLaunchFailure : cudaSuccess;
}

void CheckGuards(const void* pointer, size_t bytes) {
  const auto* const data = static_cast<const unsigned char*>(pointer);
  for (size_t i = 0; i < kGuardBytes; ++i) {
    CHECK(data[-1 - static_cast<ptrdiff_t>(i)] == kGuard)
        << "something was written " << i + 1 << " bytes before a block of " << bytes << " bytes";
    CHECK(data[bytes + i] == kGuard)
        << "something was written " << i << " bytes after a block of " << bytes << " bytes";
  }
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorInvalidValue";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  const EmulatedMachine& state = machine().state;
  if (state.device_count == 0) return cudaErrorNoDevice;
  if (state.driver_version < 13000) return cudaErrorInsufficientDriver;
  *count = state.device_count;
  return Health();
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().state.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().state.device_count) return cudaErrorInvalidDevice;
  return Health();
}

cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= machine().state.device_count) return cudaErrorInvalidDevice;
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "emulated GPU");
  properties->totalGlobalMem = machine().state.memory_bytes;
  properties->multiProcessorCount = 4;
  properties->major = 9;
  properties->sharedMemPerBlockOptin = 227 * 1024;
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->l2CacheSize = 1 << 20;
  return Health();
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (length < 13) return cudaErrorInvalidValue;
  std::strcpy(id, "0000:00:00.0");
  id[6] = static_cast<char>('0' + device % 10);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = machine().state.memory_bytes;
  *free = *total - std::min(*total, machine().allocated);
  return Health();
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = nullptr;
  if (Health() != cudaSuccess) return Health();
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  if (m.allocated + bytes > m.state.memory_bytes) return cudaErrorMemoryAllocation;
  const size_t whole = (bytes + 2 * kGuardBytes + 255) / 256 * 256;
  auto* const base = static_cast<unsigned char*>(std::aligned_alloc(256, whole));
  if (base == nullptr) return cudaErrorMemoryAllocation;
  std::memset(base, kGuard, whole);
  *pointer = base + kGuardBytes;
  m.blocks[*pointer] = bytes;
  m.allocated += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.blocks.find(pointer);
  if (found == m.blocks.end()) return cudaErrorInvalidValue;
  CheckGuards(pointer, found->second);
  m.allocated -= found->second;
  m.blocks.erase(found);
  std::free(static_cast<unsigned char*>(pointer) - kGuardBytes);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : Health();
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(work));
    return;
  }
  Machine& m = machine();
  if (m.state.launches_until_failure == 0) return;
  if (m.state.launches_until_failure > 0) --m.state.launches_until_failure;
  work();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return Health();
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Enqueue(stream, [=] { std::memset(to, value, bytes); });
  return Health();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return Health();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return Health(); }

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Health(); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorStreamCaptureInvalidated;
  stream->capture = new EmulatedGraph;
  return Health();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  stream->capture = nullptr;
  return *graph == nullptr ? cudaErrorStreamCaptureInvalidated : Health();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return Health();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now().time_since_epoch())
                           .count();
  return Health();
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return Health(); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = static_cast<float>(end->nanoseconds - start->nanoseconds) * 1e-6f;
  return Health();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new EmulatedGraph(*graph);
  return Health();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& node : executable->nodes) Enqueue(stream, node);
  return Health();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return Health(); }

void SetEmulatedMachine(const EmulatedMachine& state) {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.state = state;
}

size_t EmulatedAllocatedBytes() { return machine().allocated; }

}  // namespace pushpull::emulated_cuda
