#include "kernels/cpu/winograd_product.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/random.h"
#include "common/base/thread_pool.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/tile_finisher.h"

namespace pushpull {
namespace {

std::vector<float> RandomNumbers(int64_t count, uint64_t seed) {
  CounterRandom random(seed, 0);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.NextNormal());
  return numbers;
}

// A convolution as the product computes it, with its operands.
struct Case {
  WinogradTiling tiling;
  WeightOperand::Role role;
  std::vector<float> source = RandomNumbers(tiling.source.size(), 1);
  std::vector<float> weights = RandomNumbers(9 * tiling.source.c * tiling.result.c, 2);

  WeightOperand operand() const {
    const bool forward = role == WeightOperand::Role::kForward;
    const int64_t in = forward ? tiling.source.c : tiling.result.c;
    return {weights.data(), 9, in, forward ? tiling.result.c : tiling.source.c, role};
  }
  // The weight of a tap of the correlation with `source`. For the gradient of the input the kernel
  // is turned by half a turn.
  float weight(int64_t tap, int64_t inner, int64_t outer) const {
    if (role == WeightOperand::Role::kForward) {
      return weights[(tap * tiling.source.c + inner) * tiling.result.c + outer];
    }
    return weights[((8 - tap) * tiling.result.c + outer) * tiling.source.c + inner];
  }
};

float Rounded(float value, float) { return value; }
Bfloat16 Rounded(float value, Bfloat16) { return ToBfloat16(value); }

template <typename T>
std::vector<float> Compute(const Case& test, int threads) {
  ThreadPool pool(threads);
  Arena counting;
  WinogradProduct<T>(test.tiling, threads, &counting);
  // All bits set are NaNs, so nothing is read that was not written.
  std::vector<char> memory(counting.used_bytes() + 64, '\xff');
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
  Arena arena(Workspace{reinterpret_cast<char*>(begin), counting.used_bytes()});
  const WinogradProduct<T> product(test.tiling, threads, &arena);
  std::vector<T> source;
  for (const float value : test.source) source.push_back(Rounded(value, T()));
  std::vector<float> result(test.tiling.result.size(), std::nanf(""));
  const ForwardFinisher<float> finisher(test.tiling.result.c, nullptr, result.data(), nullptr);
  product.Run(source.data(), test.operand(), finisher, &pool);
  return result;
}

std::vector<double> Expected(const Case& test) {
  const Shape& source = test.tiling.source;
  const Shape& result = test.tiling.result;
  std::vector<double> expected;
  for (int64_t n = 0; n < result.n; ++n) {
    for (int64_t i = 0; i < result.h * result.w * result.c; ++i) {
      const int64_t h = i / (result.w * result.c), w = i / result.c % result.w, c = i % result.c;
      double sum = 0.0;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t y = h - test.tiling.top + tap / 3, x = w - test.tiling.left + tap % 3;
        if (y < 0 || y >= source.h || x < 0 || x >= source.w) continue;
        for (int64_t k = 0; k < source.c; ++k) {
          const float value = test.source[((n * source.h + y) * source.w + x) * source.c + k];
          sum += double{value} * test.weight(tap, k, c);
        }
      }
      expected.push_back(sum);
    }
  }
  return expected;
}

// Odd and even sizes, padding on no, one and all sides, images that fill blocks and do not, and
// channels that do not fill panels and chunks.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  const ConvolutionShape shapes[] = {
      {{2, 6, 6, 16}, 32, 3, 1, {1, 1, 1, 1}},  {{3, 7, 5, 24}, 40, 3, 1, {1, 1, 1, 1}},
      {{2, 9, 8, 37}, 11, 3, 1, {0, 0, 0, 0}},  {{1, 3, 3, 9}, 8, 3, 1, {0, 0, 0, 0}},
      {{2, 5, 6, 20}, 19, 3, 1, {1, 0, 0, 2}},  {{29, 7, 7, 8}, 50, 3, 1, {1, 1, 1, 1}},
      {{1, 1, 1, 150}, 70, 3, 1, {1, 1, 1, 1}}, {{2, 28, 27, 10}, 10, 3, 1, {1, 1, 1, 1}},
      {{5, 4, 4, 300}, 33, 3, 1, {1, 1, 1, 1}},
  };
  for (const ConvolutionShape& shape : shapes) {
    cases.push_back({ForwardTiling(shape), WeightOperand::Role::kForward});
    cases.push_back({BackwardTiling(shape), WeightOperand::Role::kTransposed});
  }
  return cases;
}

std::string NameOf(const Case& test) {
  const Shape& s = test.tiling.source;
  const Shape& r = test.tiling.result;
  return absl::StrCat(s.n, "x", s.h, "x", s.w, "x", s.c, " to ", r.h, "x", r.w, "x", r.c);
}

// The errors in units of the size of a sum of products of normal numbers.
struct Errors {
  double largest = 0.0;
  double mean = 0.0;  // root of the mean square
};

template <typename Number>
Errors ErrorsOf(const Case& test, const std::vector<Number>& actual) {
  const std::vector<double> expected = Expected(test);
  const double size = std::sqrt(9.0 * test.tiling.source.c);
  Errors errors;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]) / size;
    errors.largest = error <= errors.largest ? errors.largest : error;  // a NaN counts
    errors.mean += error * error / static_cast<double>(expected.size());
  }
  errors.mean = std::sqrt(errors.mean);
  return errors;
}

TEST(WinogradProduct, IsTheConvolution) {
  for (const Case& test : Cases()) {
    EXPECT_LT(ErrorsOf(test, Compute<float>(test, 2)).largest, 3e-6) << NameOf(test);
  }
}

// The direct sum rounds only the weights: the source is in bfloat16 already.
TEST(WinogradProduct, InBfloat16ItsErrorsAreAFewTimesThoseOfTheDirectSum) {
  for (Case test : Cases()) {
    for (float& value : test.source) value = ToFloat(ToBfloat16(value));
    Case rounded = test;
    for (float& weight : rounded.weights) weight = ToFloat(ToBfloat16(weight));
    const Errors direct = ErrorsOf(test, Expected(rounded));
    const Errors errors = ErrorsOf(test, Compute<Bfloat16>(test, 2));
    EXPECT_LT(errors.mean, 3.0 * direct.mean) << NameOf(test);
    EXPECT_LT(errors.largest, 4.5 * direct.largest) << NameOf(test);
  }
}

TEST(WinogradProduct, DoesNotDependOnTheNumberOfThreads) {
  for (const Case& test : Cases()) {
    EXPECT_EQ(Compute<float>(test, 1), Compute<float>(test, 3)) << NameOf(test);
    EXPECT_EQ(Compute<Bfloat16>(test, 1), Compute<Bfloat16>(test, 3)) << NameOf(test);
  }
}

template <typename T>
void ExpectInstructionSetsDoNotMatter(const Case& test) {
  const std::vector<float> best = Compute<T>(test, 2);
  for (const CpuIsa isa : AvailableCpuIsas()) {
    if (!HasFusedMultiplyAdd(isa)) continue;
    UseCpuIsa(isa);
    EXPECT_EQ(Compute<T>(test, 2), best) << NameOf(test) << ", " << CpuIsaName(isa);
    UseCpuIsa(AvailableCpuIsas().back());
  }
}

TEST(WinogradProduct, DoesNotDependOnTheInstructionSet) {
  for (const Case& test : Cases()) {
    ExpectInstructionSetsDoNotMatter<float>(test);
    ExpectInstructionSetsDoNotMatter<Bfloat16>(test);
  }
}

// A clone computes only its part of a batch, and another division of the batch must not change it.
TEST(WinogradProduct, DoesNotDependOnTheOtherImages) {
  for (Case test : Cases()) {
    const std::vector<float> all = Compute<float>(test, 2);
    const int64_t images = test.tiling.result.n;
    const int64_t source_size = test.tiling.source.size() / images;
    const int64_t result_size = test.tiling.result.size() / images;
    test.tiling.source.n = test.tiling.result.n = 1;
    test.source.erase(test.source.begin(), test.source.end() - source_size);
    EXPECT_EQ(Compute<float>(test, 2), std::vector<float>(all.end() - result_size, all.end()))
        << NameOf(test);
  }
}

TEST(WinogradPays, IsForManyChannelsOnMapsThatFitTheCache) {
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 1)));
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 19, 19, 576}, 273, 3, 1)));
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 28, 28, 64}, 64, 3, 1)));
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 2))) << "stride 2";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 1, 1))) << "1x1";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 5, 1))) << "5x5";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 19, 19, 576}, 12, 3, 1))) << "few results";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 19, 19, 32}, 64, 3, 1))) << "few channels";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 56, 56, 64}, 64, 3, 1))) << "too many tiles";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 3, 3, 256}, 546, 3, 1))) << "tiles of 3x3 pixels";
}

}  // namespace
}  // namespace pushpull
