#include "kernels/cuda/emulation/runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "kernels/cuda/emulation/checks.h"
#include "kernels/cuda/emulation/guarded_memory.h"
#include "kernels/cuda/emulation/launch_list.h"

namespace pushpull::emulated_cuda {
namespace {

struct Block {
  size_t bytes = 0;
  int device = 0;
};

struct Machine {
  std::mutex mutex;
  EmulatedMachine state;
  size_t allocated = 0;
  size_t taken = 0;  // by another process
  emulation::GuardedMemory device_memory{"device memory"};
  emulation::GuardedMemory pinned_memory{"page-locked memory"};
  std::map<void*, Block> blocks;   // of device memory
  std::map<void*, size_t> pinned;  // blocks of page-locked memory
  std::vector<cudaStream_t> streams;
  std::optional<Interleaving> interleaving;  // if the machine has a seed

  void CheckMemory() const {
    for (const auto& [data, block] : blocks) device_memory.CheckGuards(data, block.bytes);
    for (const auto& [data, bytes] : pinned) pinned_memory.CheckGuards(data, bytes);
    device_memory.CheckFreed();
    pinned_memory.CheckFreed();
  }
};

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;  // of a call that does not break the device

Machine& machine() {
  static Machine* const the_machine = [] {
    std::atexit([] { machine().CheckMemory(); });
    return new Machine;
  }();
  return *the_machine;
}

// The answer of most calls: once the device has failed they all return the same error.
cudaError_t Health() {
  const EmulatedMachine& state = machine().state;
  return state.launches_until_failure == 0 ? cudaErrorLaunchFailure : cudaSuccess;
}

void Perform(const std::function<void()>& work) {
  Machine& m = machine();
  if (m.state.launches_until_failure == 0) return;
  if (m.state.launches_until_failure > 0) --m.state.launches_until_failure;
  work();
}

// Whether work waits in queues; otherwise it runs at once.
bool QueuesWork() { return machine().state.defers || machine().interleaving.has_value(); }

Interleaving::Queues AllWork() {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  Interleaving::Queues queues;
  for (const cudaStream_t stream : m.streams) queues.push_back(stream->work);
  return queues;
}

// Called when somebody waits: runs the work up to this place, and what it waits for.
void Reach(EmulatedWork* work, int64_t place) {
  Machine& m = machine();
  if (m.interleaving.has_value()) m.interleaving->RunUntil(AllWork(), work, place);
  RunUntil(work, place);
}

void Finish(EmulatedWork* work) { Reach(work, work->end()); }

// Called when work has been queued.
void RunSome() {
  Machine& m = machine();
  if (m.interleaving.has_value()) m.interleaving->RunSome(AllWork());
}

// Whether all bytes are in one block of page-locked memory.
bool IsPinned(const void* data, size_t bytes) {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto after = m.pinned.upper_bound(const_cast<void*>(data));
  if (after == m.pinned.begin()) return false;
  const auto& [begin, size] = *--after;
  return static_cast<const char*>(data) + bytes <= static_cast<const char*>(begin) + size;
}

// Keeps an error that only this thread sees, once.
cudaError_t Refuse(cudaError_t error = cudaErrorInvalidResourceHandle) {
  last_error = error;
  return last_error;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  static constexpr std::pair<cudaError_t, const char*> kNames[] = {
      {cudaSuccess, "cudaSuccess"},
      {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
      {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
      {cudaErrorNoDevice, "cudaErrorNoDevice"},
      {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
      {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
      {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice"},
      {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable"},
      {cudaErrorInvalidPtx, "cudaErrorInvalidPtx"},
      {cudaErrorJitCompilerNotFound, "cudaErrorJitCompilerNotFound"},
      {cudaErrorUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion"},
      {cudaErrorJitCompilationDisabled, "cudaErrorJitCompilationDisabled"},
      {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
      {cudaErrorSystemNotReady, "cudaErrorSystemNotReady"},
  };
  for (const auto& [code, name] : kNames) {
    if (code == error) return name;
  }
  return "cudaErrorInvalidValue";
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  const EmulatedMachine& state = machine().state;
  if (state.start_error != cudaSuccess) return Refuse(state.start_error);
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
  current_device = device;
  return Health();
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return Health();
}

cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= machine().state.device_count) return cudaErrorInvalidDevice;
  if (device == machine().state.silent_device) return Refuse(cudaErrorECCUncorrectable);
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "emulated GPU");
  properties->totalGlobalMem = machine().state.memory_bytes;
  properties->multiProcessorCount = machine().state.multiprocessors;
  properties->major = machine().state.capability / 10;
  properties->minor = machine().state.capability % 10;
  properties->sharedMemPerBlockOptin = 227 * 1024;
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return Health();
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = machine().state.memory_bytes;
  *free = *total - std::min(*total, machine().allocated + machine().taken);
  return Health();
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = nullptr;
  if (Health() != cudaSuccess) return Health();
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.taken += std::exchange(m.state.taken_at_allocation, 0);
  if (m.allocated + m.taken + bytes > m.state.memory_bytes) return cudaErrorMemoryAllocation;
  *pointer = m.device_memory.Allocate(bytes);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  m.blocks[*pointer] = {bytes, current_device};
  m.allocated += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Machine& m = machine();
  for (const auto& work : AllWork()) Finish(work.get());  // as CUDA does
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.blocks.find(pointer);
  if (found == m.blocks.end()) return cudaErrorInvalidValue;
  m.device_memory.Free(pointer, found->second.bytes);
  m.allocated -= found->second.bytes;
  m.blocks.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  *pointer = m.pinned_memory.Allocate(bytes);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  m.pinned[*pointer] = bytes;
  return Health();
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.pinned.find(pointer);
  if (found == m.pinned.end()) return cudaErrorInvalidValue;
  m.pinned_memory.Free(pointer, found->second);
  m.pinned.erase(found);
  return cudaSuccess;
}

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (emulation::ListsLaunches()) return;
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(work));
  } else if (stream != nullptr && QueuesWork()) {
    stream->work->waiting.push_back({[work = std::move(work)] { Perform(work); }, nullptr});
    RunSome();
  } else {
    if (stream != nullptr) Finish(stream->work.get());
    Perform(work);
  }
}

void EnqueueKernel(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->device != current_device) {
    Refuse();
    return;
  }
  Enqueue(stream, std::move(work));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice && !IsPinned(from, bytes)) {
    // CUDA has read memory that is not page-locked when the call returns.
    const auto* const begin = static_cast<const char*>(from);
    Enqueue(stream, [to, bytes, kept = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, kept.data(), bytes);
    });
    return Health();
  }
  const bool from_pinned = kind == cudaMemcpyHostToDevice;
  const bool to_pinned = kind == cudaMemcpyDeviceToHost && IsPinned(to, bytes);
  Enqueue(stream, [=] {
    CHECK(!from_pinned || IsPinned(from, bytes))
        << "a copy of " << bytes << " bytes from page-locked memory ran after the memory had been "
        << "freed";
    CHECK(!to_pinned || IsPinned(to, bytes))
        << "a copy of " << bytes << " bytes to page-locked memory ran after the memory had been "
        << "freed";
    std::memcpy(to, from, bytes);
  });
  // CUDA has written memory that is not page-locked when the call returns.
  const bool blocks = kind == cudaMemcpyDeviceToHost && !to_pinned;
  if (blocks && stream != nullptr) Finish(stream->work.get());
  return Health();
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Enqueue(stream, [=] { std::memset(to, value, bytes); });
  return Health();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  (*stream)->device = current_device;
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.streams.push_back(*stream);
  return Health();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Finish(stream->work.get());
  Machine& m = machine();
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    m.streams.erase(std::remove(m.streams.begin(), m.streams.end(), stream), m.streams.end());
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) Finish(stream->work.get());
  return Health();
}

cudaError_t cudaDeviceSynchronize() {
  Machine& m = machine();
  std::vector<cudaStream_t> streams;
  {
    std::lock_guard<std::mutex> lock(m.mutex);
    streams.assign(m.streams.begin(), m.streams.end());
  }
  for (const cudaStream_t stream : streams) Finish(stream->work.get());
  return Health();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!QueuesWork() || event->work == nullptr) return Health();
  stream->work->waiting.push_back({nullptr, event->work, event->place});
  RunSome();
  return Health();
}

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
  (*event)->device = current_device;
  return Health();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr) {
    if (stream->device != event->device) return Refuse();
    event->work = stream->work;
    event->place = stream->work->end();
  }
  event->nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now().time_since_epoch())
                           .count();
  return Health();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->work != nullptr) Reach(event->work.get(), event->place);
  return Health();
}

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
  if (stream->device != current_device) return Refuse();
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

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  const EmulatedMachine& state = machine().state;
  if (state.code_error == cudaSuccess && state.capability >= kEmulatedCodeFrom) return Health();
  return Refuse(state.code_error != cudaSuccess ? state.code_error
                                                : cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error == cudaSuccess ? Health() : last_error;
  last_error = cudaSuccess;
  return error;
}

void SetEmulatedMachine(const EmulatedMachine& state) {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  m.CheckMemory();
  m.state = state;
  m.taken = 0;
  m.interleaving.reset();
  if (state.seed.has_value() && emulation::ChecksAreOn()) m.interleaving.emplace(*state.seed);
}

size_t EmulatedAllocatedBytes() { return machine().allocated; }

size_t EmulatedAllocatedBytes(int device) {
  Machine& m = machine();
  std::lock_guard<std::mutex> lock(m.mutex);
  size_t bytes = 0;
  for (const auto& [data, block] : m.blocks) {
    if (block.device == device) bytes += block.bytes;
  }
  return bytes;
}

}  // namespace pushpull::emulated_cuda

extern "C" void PushpullEmulatedEnqueue(void* stream, void (*work)(void*), void* argument,
                                        void (*destroy)(void*)) {
  pushpull::emulated_cuda::Enqueue(
      static_cast<pushpull::emulated_cuda::cudaStream_t>(stream),
      [work, owned = std::shared_ptr<void>(argument, destroy)] { work(owned.get()); });
}
