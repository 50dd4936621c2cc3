// Tests of the CUDA backend are compiled twice: for the emulation, and for CUDA, where the program
// exits with 77 if the machine has no GPU. This header hides the difference.
#ifndef PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_FIXTURE_H_
#define PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_FIXTURE_H_

#include <cstdlib>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "kernels/cuda/queue.h"
#include "kernels/memory.h"
#include "tests/testkit/kernels/operand_memory.h"

namespace pushpull::PUSHPULL_CUDA {

// The order in which the emulation runs the threads of a block. It has no effect on a GPU.
enum class Order { kForward, kBackward, kShuffled };
inline void SetOrder(Order order) {
#ifdef PUSHPULL_CUDA_EMULATION
  emulation::SetThreadOrder(order == Order::kForward    ? emulation::ThreadOrder::kForward
                            : order == Order::kBackward ? emulation::ThreadOrder::kBackward
                                                        : emulation::ThreadOrder::kShuffled);
#else
  (void)order;
#endif
}

#ifndef PUSHPULL_CUDA_EMULATION
// Looks for a GPU once, before the first test. Without one, or without NVIDIA's driver, the program
// exits with 77, by which ctest knows a skipped test. A GPU that does not answer is a failure.
class GpuEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found == cudaSuccess && devices > 0) return;
    const bool absent =
        found == cudaSuccess || found == cudaErrorNoDevice || found == cudaErrorInsufficientDriver;
    std::cerr << (absent ? "skipped: there is no GPU: " : "the GPU does not answer: ")
              << cudaGetErrorString(found) << "\n";
    std::exit(absent ? 77 : 1);  // 77: SKIP_RETURN_CODE in tests/CMakeLists.txt
  }
};
inline testing::Environment* const gpu_environment =
    testing::AddGlobalTestEnvironment(new GpuEnvironment);
#endif

// A queue on the default stream of device 0.
class DefaultQueue : public Queue {
 public:
  DefaultQueue() {
    AllocateShared();
    EXPECT_EQ(error, cudaSuccess) << failed_call;
  }
  ~DefaultQueue() { FreeShared(); }
  DefaultQueue(const DefaultQueue&) = delete;
  DefaultQueue& operator=(const DefaultQueue&) = delete;
};

class DeviceBlock final : public Memory {
 public:
  DeviceBlock(void* data, int64_t bytes) : Memory(data, bytes) {}
  ~DeviceBlock() override { CHECK_EQ(cudaFree(data()), cudaSuccess); }
};

class DeviceSource final : public MemorySource {
 public:
  explicit DeviceSource(Queue* queue) : queue_(queue) {}

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    void* data = nullptr;
    queue_->Note(cudaMalloc(&data, bytes), "cudaMalloc");
    queue_->Note(cudaMemsetAsync(data, 0, bytes, queue_->stream), "cudaMemsetAsync");
    if (queue_->error != cudaSuccess) return absl::ResourceExhaustedError(queue_->failed_call);
    return std::make_unique<DeviceBlock>(data, bytes);
  }
  void Write(void* to, const void* from, int64_t bytes) override {
    queue_->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue_->stream),
                 "cudaMemcpyAsync to the device");
    queue_->Note(cudaStreamSynchronize(queue_->stream), "cudaStreamSynchronize");
  }
  void Read(void* to, const void* from, int64_t bytes) {
    queue_->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue_->stream),
                 "cudaMemcpyAsync from the device");
    queue_->Note(cudaStreamSynchronize(queue_->stream), "cudaStreamSynchronize");
    EXPECT_EQ(queue_->error, cudaSuccess)
        << queue_->failed_call << ": " << cudaGetErrorString(queue_->error);
  }

 private:
  Queue* const queue_;
};

// `Base` is testing::Test or testing::TestWithParam<...>.
template <typename Base>
class DeviceFixture : public Base {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(queue_.device), cudaSuccess);  // a test may have left another one
    cudaDeviceProp properties;
    ASSERT_EQ(cudaGetDeviceProperties(&properties, queue_.device), cudaSuccess);
    queue_.multiprocessors = properties.multiProcessorCount;
    queue_.shared_bytes_limit = static_cast<int>(properties.sharedMemPerBlockOptin);
    ASSERT_EQ(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), cudaSuccess);
    queue_.AllocateShared();
    ASSERT_EQ(queue_.error, cudaSuccess) << queue_.failed_call;
  }
  void TearDown() override {
    SetOrder(Order::kForward);
    queue_.FreeShared();
    if (queue_.stream != nullptr) cudaStreamDestroy(queue_.stream);
  }

  Queue* queue() { return &queue_; }
  OperandMemory memory() {
    return {&source_,
            [this](void* to, const void* from, int64_t bytes) { source_.Read(to, from, bytes); }};
  }

 private:
  Queue queue_;
  DeviceSource source_{&queue_};
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_FIXTURE_H_
