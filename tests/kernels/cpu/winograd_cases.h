// What the tests of the two classes for minimal filtering share: convolutions, numbers, memory, the
// measure of errors, and the comparison of instruction sets.
#ifndef PUSHPULL_TESTS_KERNELS_CPU_WINOGRAD_CASES_H_
#define PUSHPULL_TESTS_KERNELS_CPU_WINOGRAD_CASES_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/random.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/winograd_tiling.h"
#include "kernels/shape.h"
#include "tests/testkit/each_cpu_isa.h"

namespace pushpull {

// Odd and even sizes, padding on no, one and all sides, images that fill blocks and do not, images
// of several blocks, the last of which is smaller, more numbers than a group has, and channels that
// do not fill panels, chunks and slices.
inline std::vector<ConvolutionShape> WinogradShapes() {
  return {
      {{2, 6, 6, 16}, 32, 3, 1, {1, 1, 1, 1}},   {{3, 7, 5, 24}, 40, 3, 1, {1, 1, 1, 1}},
      {{2, 9, 8, 37}, 11, 3, 1, {0, 0, 0, 0}},   {{1, 3, 3, 9}, 8, 3, 1, {0, 0, 0, 0}},
      {{2, 5, 6, 20}, 19, 3, 1, {1, 0, 0, 2}},   {{29, 7, 7, 8}, 50, 3, 1, {1, 1, 1, 1}},
      {{1, 1, 1, 150}, 70, 3, 1, {1, 1, 1, 1}},  {{2, 28, 27, 10}, 10, 3, 1, {1, 1, 1, 1}},
      {{5, 4, 4, 300}, 33, 3, 1, {1, 1, 1, 1}},  {{2, 45, 43, 12}, 9, 3, 1, {1, 1, 1, 1}},
      {{9, 28, 28, 2}, 304, 3, 1, {1, 1, 1, 1}},
  };
}

inline std::string NameOf(const WinogradTiling& tiling) {
  const Shape& s = tiling.source;
  const Shape& r = tiling.result;
  return absl::StrCat(s.n, "x", s.h, "x", s.w, "x", s.c, " to ", r.h, "x", r.w, "x", r.c);
}

inline std::vector<float> NormalNumbers(int64_t count, uint64_t seed) {
  CounterRandom random(seed, 0);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.NextNormal());
  return numbers;
}

// The numbers as the type of an operand, and with its precision.
template <typename T>
std::vector<T> Converted(const std::vector<float>& numbers) {
  std::vector<T> converted;
  for (const float number : numbers) {
    if constexpr (std::is_same_v<T, float>) {
      converted.push_back(number);
    } else {
      converted.push_back(ToBfloat16(number));
    }
  }
  return converted;
}
inline void RoundToBfloat16(std::vector<float>* numbers) {
  for (float& number : *numbers) number = ToFloat(ToBfloat16(number));
}

// Memory for an Arena. All its bits are set, so its numbers are NaNs, and a result shows it if one
// was read that had not been written.
class WinogradMemory {
 public:
  explicit WinogradMemory(int64_t bytes) : bytes_(bytes), memory_(bytes + 64, '\xff') {}
  Arena arena() {
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64;
    return Arena(Workspace{reinterpret_cast<char*>(begin), bytes_});
  }

 private:
  int64_t bytes_;
  std::vector<char> memory_;
};

struct Errors {
  double largest = 0.0;
  double mean = 0.0;  // root of the mean square
};

// The errors of sums of `terms` products of normal numbers, in units of their size.
template <typename Number>
Errors ErrorsOf(const std::vector<Number>& actual, const std::vector<double>& expected,
                int64_t terms) {
  const double size = std::sqrt(static_cast<double>(terms));
  Errors errors;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]) / size;
    errors.largest = error <= errors.largest ? errors.largest : error;  // a NaN counts
    errors.mean += error * error / static_cast<double>(expected.size());
  }
  errors.mean = std::sqrt(errors.mean);
  return errors;
}

// Expects that compute() returns the same numbers with each instruction set of this CPU that should
// round alike for tensors of type T. `name` is that of the case.
template <typename T>
void ExpectInstructionSetsDoNotMatter(const std::string& name,
                                      absl::FunctionRef<std::vector<float>()> compute) {
  const CpuIsa best = BestCpuIsaWithoutTiles();
  std::vector<float> expected;
  for (const CpuIsa isa : AvailableCpuIsas()) {
    if (!RoundAlike<T>(isa, best)) continue;
    UseCpuIsa(isa);
    const std::vector<float> computed = compute();
    UseCpuIsa(AvailableCpuIsas().back());
    if (expected.empty()) expected = computed;
    EXPECT_EQ(computed, expected) << name << ", " << CpuIsaName(isa);
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_KERNELS_CPU_WINOGRAD_CASES_H_
