// The emulated runtime: memory between guards, graphs, and faults that tests inject.
#include <csignal>
#include <cstdlib>
#include <set>

#include "gtest/gtest.h"

#include "kernels/cuda/launch.cuh"

namespace pushpull::emulated_cuda {
namespace {

class EmulatedRuntime : public testing::Test {
 protected:
  EmulatedRuntime() {
    EXPECT_EQ(cudaSetDevice(queue_.device), cudaSuccess);  // a test may have left another one
    EXPECT_EQ(cudaStreamCreateWithFlags(&queue_.stream, 0), cudaSuccess);
  }
  ~EmulatedRuntime() override {
    SetEmulatedMachine({});
    cudaStreamDestroy(queue_.stream);
  }

  float* Allocate(size_t count) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, count * sizeof(float)), cudaSuccess);
    return static_cast<float*>(data);
  }
  // Adds `value` to each number, with one thread per number.
  void Add(float* data, unsigned count, float value) {
    Launch(
        &queue_, "add", {dim3(1), dim3(count), 0},
        +[](float* to, float v) { to[threadIdx.x] += v; }, data, value);
  }
  void Fill(float* data, unsigned count, float value) {
    Launch(
        &queue_, "fill", {dim3(1), dim3(count), 0},
        +[](float* to, float v) { to[threadIdx.x] = v; }, data, value);
  }

  Queue queue_;
};

TEST_F(EmulatedRuntime, FreeingABlockDetectsWritesPastIt) {
  float* const data = Allocate(16);
  EXPECT_DEATH(
      {
        Fill(data, 17, 1.0f);
        cudaFree(data);
      },
      "written 0 bytes after a block of 64 bytes");
  EXPECT_DEATH(
      {
        Fill(data - 1, 2, 1.0f);
        cudaFree(data);
      },
      "written . bytes before a block of 64 bytes");
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EmulatedRuntime, FreshMemoryDoesNotLookLikeData) {
  float* const data = Allocate(4);
  for (int i = 0; i < 4; ++i) EXPECT_LT(data[i], -1e30f);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue) << "the block is freed twice";
}

TEST_F(EmulatedRuntime, FreedMemoryIsNanAndAWriteToItIsFound) {
  float* const data = Allocate(4);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  for (int i = 0; i < 4; ++i) EXPECT_NE(data[i], data[i]);
  EXPECT_DEATH(
      {
        Fill(data, 1, 1.0f);
        SetEmulatedMachine({});
      },
      "written to byte 0 of a block of 16 bytes of device memory after it had been freed");
  EXPECT_DEATH(
      {
        Fill(data + 2, 1, 1.0f);
        for (int i = 0; i < 5; ++i) cudaFree(Allocate(4 << 20));  // 16 MiB each: the block leaves
      },
      "written to byte 8 of a block of 16 bytes of device memory after it had been freed");
  EXPECT_EXIT(
      {
        Fill(data, 1, 1.0f);
        std::exit(0);
      },
      testing::KilledBySignal(SIGABRT), "written to byte 0 of a block of 16 bytes");
}

TEST_F(EmulatedRuntime, PageLockedMemoryIsGuardedToo) {
  void* data = nullptr;
  ASSERT_EQ(cudaHostAlloc(&data, 16, cudaHostAllocDefault), cudaSuccess);
  float* const numbers = static_cast<float*>(data);
  for (int i = 0; i < 4; ++i) EXPECT_LT(numbers[i], -1e30f);
  EXPECT_DEATH(
      {
        Fill(numbers, 5, 1.0f);
        cudaFreeHost(data);
      },
      "written 0 bytes after a block of 16 bytes of page-locked memory");
  EXPECT_EQ(cudaFreeHost(data), cudaSuccess);
  for (int i = 0; i < 4; ++i) EXPECT_NE(numbers[i], numbers[i]);
  EXPECT_DEATH(
      {
        Fill(numbers, 1, 1.0f);
        SetEmulatedMachine({});
      },
      "written to byte 0 of a block of 16 bytes of page-locked memory after it had been freed");
  EXPECT_EQ(cudaFreeHost(data), cudaErrorInvalidValue) << "the block is freed twice";
}

TEST_F(EmulatedRuntime, ACopyOfFreedPageLockedMemoryIsAnError) {
  SetEmulatedMachine({.defers = true});
  float* const data = Allocate(4);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 16, cudaHostAllocDefault), cudaSuccess);
  EXPECT_DEATH(
      {
        cudaMemcpyAsync(data, pinned, 16, cudaMemcpyHostToDevice, queue_.stream);
        cudaFreeHost(pinned);
        cudaStreamSynchronize(queue_.stream);
      },
      "a copy of 16 bytes from page-locked memory ran after the memory had been freed");
  EXPECT_DEATH(
      {
        cudaMemcpyAsync(pinned, data, 16, cudaMemcpyDeviceToHost, queue_.stream);
        cudaFreeHost(pinned);
        cudaStreamSynchronize(queue_.stream);
      },
      "a copy of 16 bytes to page-locked memory ran after the memory had been freed");
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EmulatedRuntime, CountsMemoryAndFailsBeyondTheDevice) {
  SetEmulatedMachine({.memory_bytes = EmulatedAllocatedBytes() + 1000});
  float* const data = Allocate(200);
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 200u);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 201), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, 201), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(EmulatedRuntime, ACaptureRunsNothingUntilItsGraphIsLaunched) {
  float* const data = Allocate(8);
  Fill(data, 8, 1.0f);
  ASSERT_EQ(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Add(data, 8, 2.0f);
  Add(data, 4, 10.0f);
  EXPECT_EQ(data[0], 1.0f);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(queue_.stream, &graph), cudaSuccess);
  EXPECT_EQ(data[0], 1.0f);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(cudaGraphLaunch(executable, queue_.stream), cudaSuccess);
    EXPECT_EQ(data[0], 1.0f + 12.0f * static_cast<float>(i));
    EXPECT_EQ(data[7], 1.0f + 2.0f * static_cast<float>(i));
  }
  Add(data, 8, 0.5f);  // the stream no longer records
  EXPECT_EQ(data[7], 5.5f);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EmulatedRuntime, ADeferredStreamRunsWhatAWaitNeedsAndNoMore) {
  SetEmulatedMachine({.defers = true});
  float* const data = Allocate(1);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, 0), cudaSuccess);
  cudaEvent_t filled = nullptr, added = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&filled, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&added, 0), cudaSuccess);
  const float before = data[0];
  Fill(data, 1, 1.0f);
  ASSERT_EQ(cudaEventRecord(filled, queue_.stream), cudaSuccess);
  Add(data, 1, 2.0f);
  ASSERT_EQ(cudaStreamWaitEvent(other, filled, 0), cudaSuccess);
  Enqueue(other, [data] { data[0] *= 10.0f; });
  ASSERT_EQ(cudaEventRecord(added, other), cudaSuccess);
  EXPECT_EQ(data[0], before);
  ASSERT_EQ(cudaEventSynchronize(added), cudaSuccess);
  EXPECT_EQ(data[0], 10.0f);  // the event lies before the addition
  ASSERT_EQ(cudaStreamSynchronize(queue_.stream), cudaSuccess);
  EXPECT_EQ(data[0], 12.0f);
  Add(data, 1, 1.0f);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(filled), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(added), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);  // waits for the last addition
}

// The host fills the memory of a copy anew without waiting, so some order copies the wrong number.
TEST_F(EmulatedRuntime, ASeedMixesTheStreams) {
  std::set<float> outcomes;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SetEmulatedMachine({.seed = seed});
    float* const data = Allocate(2);
    void* pinned = nullptr;
    ASSERT_EQ(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault), cudaSuccess);
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, 0), cudaSuccess);
    Fill(data, 2, 1.0f);
    *static_cast<float*>(pinned) = 2.0f;
    cudaMemcpyAsync(data, pinned, sizeof(float), cudaMemcpyHostToDevice, other);
    *static_cast<float*>(pinned) = 3.0f;
    EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(queue_.stream), cudaSuccess);
    outcomes.insert(data[0]);
    EXPECT_EQ(data[1], 1.0f);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  }
  // The upload is before or after the kernel, and before or after the host's second number.
  EXPECT_EQ(outcomes, (std::set<float>{1.0f, 2.0f, 3.0f}));
}

TEST_F(EmulatedRuntime, AThreadUsesOnlyTheStreamsAndEventsOfItsDevice) {
  SetEmulatedMachine({.device_count = 2});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  int calls = 0;
  EnqueueKernel(stream, [&] { ++calls; });
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error does not break the device";
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EnqueueKernel(stream, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(EmulatedRuntime, CapturesCopies) {
  float* const data = Allocate(2);
  const float values[2] = {3.0f, 4.0f};
  ASSERT_EQ(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(data, values, sizeof(values), cudaMemcpyHostToDevice, queue_.stream),
            cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(queue_.stream, &graph), cudaSuccess);
  EXPECT_NE(data[1], 4.0f);
  EXPECT_EQ(cudaGraphLaunch(graph, queue_.stream), cudaSuccess);
  EXPECT_EQ(data[1], 4.0f);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EmulatedRuntime, AFailedDeviceStopsWorkingAndTheQueueKeepsTheFirstError) {
  float* const data = Allocate(2);
  Fill(data, 2, 1.0f);
  SetEmulatedMachine({.launches_until_failure = 1});
  Add(data, 2, 1.0f);  // the last launch that runs
  Add(data, 2, 1.0f);
  EXPECT_EQ(data[0], 2.0f);
  EXPECT_EQ(queue_.error, cudaErrorLaunchFailure);
  EXPECT_STREQ(queue_.failed_call, "add");
  EXPECT_EQ(cudaStreamSynchronize(queue_.stream), cudaErrorLaunchFailure);
  SetEmulatedMachine({});
  Fill(data, 2, 7.0f);  // must not replace the first error
  EXPECT_EQ(data[0], 2.0f);
  EXPECT_STREQ(queue_.failed_call, "add");
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(EmulatedRuntime, ReportsAMissingGpuAndAnOldDriver) {
  int count = 7;
  SetEmulatedMachine({.device_count = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  SetEmulatedMachine({.driver_version = 12080});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  SetEmulatedMachine({.device_count = 2});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace pushpull::emulated_cuda
