// Memory for tests: tensors with guard values after them, and workspaces of exactly the requested
// size.
#ifndef PUSHPULL_TESTS_KERNELS_CPU_GUARDED_H_
#define PUSHPULL_TESTS_KERNELS_CPU_GUARDED_H_

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/operators.h"

namespace pushpull {

template <typename T>
std::vector<T> RandomValues(int64_t count, uint64_t stream, double scale = 1, double offset = 0) {
  CounterRandom random(20240607, stream);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(offset + scale * random.NextNormal());
  return values;
}

// An output that is NaN before it is written, so that a missed element is noticed, with a guard
// after it.
template <typename T>
class Output {
 public:
  explicit Output(int64_t count)
      : values_(count + kGuard, std::numeric_limits<T>::quiet_NaN()), count_(count) {
    for (int i = 0; i < kGuard; ++i) values_[count + i] = T(12345);
  }
  T* data() { return values_.data(); }
  std::vector<T> Take(const std::string& label) const {
    for (int i = 0; i < kGuard; ++i) {
      EXPECT_EQ(values_[count_ + i], T(12345)) << label << ": a write went past its end";
    }
    return std::vector<T>(values_.begin(), values_.begin() + count_);
  }

 private:
  static constexpr int kGuard = 32;
  std::vector<T> values_;
  int64_t count_;
};

// A workspace filled with NaN, aligned to 64 bytes, with a guard after it.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(int64_t bytes)
      : bytes_(bytes), memory_(bytes + 64 + kGuard, char(0xff)) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (64 - address % 64) % 64;
    std::memset(begin_ + bytes, 0x5a, kGuard);
  }
  ~GuardedWorkspace() {
    for (int i = 0; i < kGuard; ++i)
      EXPECT_EQ(begin_[bytes_ + i], 0x5a) << "a write went past the workspace";
  }
  Workspace view() { return {begin_, bytes_}; }

 private:
  static constexpr int kGuard = 64;
  int64_t bytes_;
  std::vector<char> memory_;
  char* begin_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_KERNELS_CPU_GUARDED_H_
