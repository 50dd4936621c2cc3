#include "kernels/cpu/winograd_weight_gradient.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "kernels/bfloat16.h"
#include "tests/kernels/cpu/winograd_cases.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

struct Gradients {
  explicit Gradients(const ConvolutionShape& shape) : tiling(ForwardTiling(shape)) {}

  int64_t terms() const { return tiling.result.n * tiling.result.h * tiling.result.w; }

  WinogradTiling tiling;
  std::vector<float> x = NormalNumbers(tiling.source.size(), 1);
  std::vector<float> dy = NormalNumbers(tiling.result.size(), 2);
};

std::vector<Gradients> AllGradients() {
  std::vector<Gradients> all;
  for (const ConvolutionShape& shape : WinogradShapes()) all.emplace_back(shape);
  // 396 tiles are more than are summed up at once. One slice has two panels, the others have one.
  all.emplace_back(ConvolutionShape{{3, 24, 21, 150}, 21, 3, 1, {1, 1, 1, 1}});
  return all;
}

template <typename P>
std::vector<float> Compute(const Gradients& test, int threads) {
  using T = TensorOf<P>;
  ThreadPool pool(threads);
  Arena counting;
  WinogradWeightGradient<P>(test.tiling, threads, &counting);
  WinogradMemory memory(counting.used_bytes());
  Arena arena = memory.arena();
  const WinogradWeightGradient<P> gradient(test.tiling, threads, &arena);
  std::vector<float> dweights(9 * test.tiling.source.c * test.tiling.result.c, std::nanf(""));
  const std::vector<T> x = Converted<T>(test.x), dy = Converted<T>(test.dy);
  gradient.Run(x.data(), dy.data(), dweights.data(), &pool);
  return dweights;
}

std::vector<double> Expected(const Gradients& test) {
  const Shape& source = test.tiling.source;
  const Shape& result = test.tiling.result;
  std::vector<double> expected(9 * source.c * result.c);
  for (int64_t pixel = 0; pixel < test.terms(); ++pixel) {
    const int64_t n = pixel / (result.h * result.w);
    const int64_t h = pixel / result.w % result.h, w = pixel % result.w;
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t y = h - test.tiling.top + tap / 3, x = w - test.tiling.left + tap % 3;
      if (y < 0 || y >= source.h || x < 0 || x >= source.w) continue;
      for (int64_t k = 0; k < source.c; ++k) {
        const double value = test.x[((n * source.h + y) * source.w + x) * source.c + k];
        for (int64_t c = 0; c < result.c; ++c) {
          expected[(tap * source.c + k) * result.c + c] += value * test.dy[pixel * result.c + c];
        }
      }
    }
  }
  return expected;
}

TEST(WinogradWeightGradient, IsTheGradient) {
  for (const Gradients& test : AllGradients()) {
    const Errors errors = ErrorsOf(Compute<float>(test, 2), Expected(test), test.terms());
    EXPECT_LT(errors.largest, 5e-6) << NameOf(test.tiling);
  }
}

// The direct sum of operands that are in bfloat16 already rounds nothing. Its operands were rounded
// once each, which is the measure here. Independent roundings give a mean of 5 / 3: the variance of
// the gradient of a tap is 4, 2 or 1 times that of the direct sum in a corner of the kernel, on an
// edge or in its middle. Padding adds to it, since zeros are not rounded in the direct sum.
TEST(WinogradWeightGradient, InBfloat16ItsErrorsAreAFewTimesThoseOfTheOperands) {
  for (const Gradients& test : AllGradients()) {
    Gradients rounded = test;
    RoundToBfloat16(&rounded.x);
    RoundToBfloat16(&rounded.dy);
    const std::vector<double> expected = Expected(rounded);
    const Errors operands = ErrorsOf(expected, Expected(test), test.terms());
    const Errors errors = ErrorsOf(Compute<Bfloat16>(rounded, 2), expected, test.terms());
    EXPECT_LT(errors.mean, 2.0 * operands.mean) << NameOf(test.tiling);
    EXPECT_LT(errors.largest, 2.5 * operands.largest) << NameOf(test.tiling);
  }
}

TEST(WinogradWeightGradient, DoesNotDependOnTheNumberOfThreads) {
  for (const Gradients& test : AllGradients()) {
    for (const int threads : {3, 16}) {  // 16: more than there are slices
      const std::string label = NameOf(test.tiling) + " on " + std::to_string(threads) + " threads";
      EXPECT_EQ(Compute<float>(test, 1), Compute<float>(test, threads)) << label;
      EXPECT_EQ(Compute<Bfloat16>(test, 1), Compute<Bfloat16>(test, threads)) << label;
    }
  }
}

template <typename P>
int64_t Bytes(const WinogradTiling& tiling, int threads) {
  Arena counting;
  WinogradWeightGradient<P>(tiling, threads, &counting);
  return counting.used_bytes();
}

// 128 channels are cut into eight slices.
TEST(WinogradWeightGradient, TakesNoMemoryForThreadsWithoutASlice) {
  const WinogradTiling tiling = ForwardTiling(SameConvolution({64, 28, 28, 128}, 128, 3, 1));
  EXPECT_LT(Bytes<float>(tiling, 4), Bytes<float>(tiling, 8));
  EXPECT_EQ(Bytes<float>(tiling, 8), Bytes<float>(tiling, 1000));
  EXPECT_EQ(Bytes<Bfloat16>(tiling, 8), Bytes<Bfloat16>(tiling, 1000));
}

TEST(WinogradWeightGradient, DoesNotDependOnTheInstructionSet) {
  for (const Gradients& test : AllGradients()) {
    const std::string name = NameOf(test.tiling);
    ExpectInstructionSetsDoNotMatter<float>(name, [&] { return Compute<float>(test, 2); });
    ExpectInstructionSetsDoNotMatter<Bfloat16>(name, [&] { return Compute<Bfloat16>(test, 2); });
    ExpectInstructionSetsDoNotMatter<BfloatAsFloat>(
        name, [&] { return Compute<BfloatAsFloat>(test, 2); });
    UseCpuIsa(BestCpuIsaWithoutTiles());
    EXPECT_EQ(Compute<BfloatAsFloat>(test, 2), Compute<Bfloat16>(test, 2)) << name;
    UseCpuIsa(AvailableCpuIsas().back());
  }
}

TEST(WinogradWeightGradientPays, IsForManyTiles) {
  EXPECT_TRUE(WinogradWeightGradientPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 1)));
  EXPECT_TRUE(WinogradWeightGradientPays(SameConvolution({8, 7, 7, 512}, 512, 3, 1)));
  EXPECT_FALSE(WinogradWeightGradientPays(SameConvolution({1, 7, 7, 512}, 512, 3, 1)))
      << "16 tiles";
  EXPECT_FALSE(WinogradWeightGradientPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 2)))
      << "stride 2";
}

}  // namespace
}  // namespace pushpull
