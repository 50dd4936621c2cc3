// Arrays in device memory and numbers rounded to a type, for the emulation and for CUDA.
#ifndef PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_
#define PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/queue.h"
#include "tests/kernels/cuda/device_fixture.h"

namespace pushpull::PUSHPULL_CUDA {

// An array of exactly the given number of elements. Copies wait for all streams of the device, so
// it goes with every queue. In the emulation it lies between guards, which the destructor checks.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
    data_ = static_cast<T*>(memory);
  }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    Copy(data_, values.data(), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  std::vector<T> Take() const {
    std::vector<T> values(count_);
    Copy(values.data(), data_, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void Copy(T* to, const T* from, cudaMemcpyKind kind) const {
    if (count_ == 0) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(to, from, count_ * sizeof(T), kind, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  T* data_ = nullptr;
  int64_t count_;
};

// Returns the nearest number that type T can hold.
template <typename T>
T Nearest(double value);
template <>
inline float Nearest<float>(double value) {
  return static_cast<float>(value);
}
template <>
inline Bfloat16 Nearest<Bfloat16>(double value) {
  return ToBfloat16(static_cast<float>(value));
}

template <typename T>
std::vector<T> Nearest(const std::vector<double>& values) {
  std::vector<T> result;
  for (const double value : values) result.push_back(Nearest<T>(value));
  return result;
}

template <typename T>
std::vector<double> ToDoubles(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T value : values) result.push_back(ToFloat(value));
  return result;
}

template <typename T>
std::vector<T> RandomNumbers(int64_t count, uint64_t stream, double scale = 1.0,
                             double offset = 0.0) {
  CounterRandom random(20241121, stream);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(Nearest<T>(offset + scale * random.NextNormal()));
  }
  return values;
}

// The allowed error of a result against the reference, relative to the largest number.
template <typename T>
constexpr double ToleranceOf() {
  return sizeof(T) == 2 ? 1e-2 : 1e-5;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Calls run() with the threads in each order and expects the same bits in the results, which are
// vectors of plain numbers.
template <typename Run>
auto InAllOrders(Run run) {
  SetOrder(Order::kBackward);
  const auto backward = run();
  SetOrder(Order::kShuffled);
  const auto shuffled = run();
  SetOrder(Order::kForward);
  const auto forward = run();
  EXPECT_TRUE(SameBits(forward, backward) && SameBits(forward, shuffled))
      << "the result depends on the order of the threads";
  return forward;
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_
