#include "kernels/cpu/winograd_product.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/tile_finisher.h"
#include "tests/kernels/cpu/winograd_cases.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

// A convolution as the product computes it, with its operands.
struct Case {
  WinogradTiling tiling;
  WeightOperand::Role role;
  std::vector<float> source = NormalNumbers(tiling.source.size(), 1);
  std::vector<float> weights = NormalNumbers(9 * tiling.source.c * tiling.result.c, 2);

  int64_t terms() const { return 9 * tiling.source.c; }  // of a sum
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

template <typename P>
std::vector<float> Compute(const Case& test, int threads) {
  using T = TensorOf<P>;
  ThreadPool pool(threads);
  Arena counting;
  WinogradProduct<P>(test.tiling, threads, &counting);
  WinogradMemory memory(counting.used_bytes());
  Arena arena = memory.arena();
  const WinogradProduct<P> product(test.tiling, threads, &arena);
  const std::vector<T> source = Converted<T>(test.source);
  std::vector<float> result(test.tiling.result.size(), std::nanf(""));
  const Shape& shape = test.tiling.result;
  const ForwardFinisher<float> finisher(shape.rows(), shape.c, nullptr, result.data(), nullptr);
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

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const ConvolutionShape& shape : WinogradShapes()) {
    cases.push_back({ForwardTiling(shape), WeightOperand::Role::kForward});
    cases.push_back({BackwardTiling(shape), WeightOperand::Role::kTransposed});
  }
  return cases;
}

TEST(WinogradProduct, IsTheConvolution) {
  for (const Case& test : Cases()) {
    const Errors errors = ErrorsOf(Compute<float>(test, 2), Expected(test), test.terms());
    EXPECT_LT(errors.largest, 3e-6) << NameOf(test.tiling);
  }
}

// The direct sum rounds only the weights: the source is in bfloat16 already.
TEST(WinogradProduct, InBfloat16ItsErrorsAreAFewTimesThoseOfTheDirectSum) {
  for (Case test : Cases()) {
    RoundToBfloat16(&test.source);
    Case rounded = test;
    RoundToBfloat16(&rounded.weights);
    const std::vector<double> expected = Expected(test);
    const Errors direct = ErrorsOf(Expected(rounded), expected, test.terms());
    const Errors errors = ErrorsOf(Compute<Bfloat16>(test, 2), expected, test.terms());
    EXPECT_LT(errors.mean, 3.0 * direct.mean) << NameOf(test.tiling);
    EXPECT_LT(errors.largest, 4.5 * direct.largest) << NameOf(test.tiling);
  }
}

TEST(WinogradProduct, DoesNotDependOnTheNumberOfThreads) {
  for (const Case& test : Cases()) {
    EXPECT_EQ(Compute<float>(test, 1), Compute<float>(test, 3)) << NameOf(test.tiling);
    EXPECT_EQ(Compute<Bfloat16>(test, 1), Compute<Bfloat16>(test, 3)) << NameOf(test.tiling);
  }
}

TEST(WinogradProduct, DoesNotDependOnTheInstructionSet) {
  for (const Case& test : Cases()) {
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
        << NameOf(test.tiling);
  }
}

TEST(WinogradPays, IsForManyChannels) {
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 1)));
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 19, 19, 576}, 273, 3, 1)));
  EXPECT_TRUE(WinogradPays(SameConvolution({8, 56, 56, 64}, 64, 3, 1)));
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 3, 2))) << "stride 2";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 1, 1))) << "1x1";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 10, 10, 1280}, 546, 5, 1))) << "5x5";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 19, 19, 576}, 12, 3, 1))) << "few results";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 19, 19, 32}, 64, 3, 1))) << "few channels";
  EXPECT_FALSE(WinogradPays(SameConvolution({8, 3, 3, 256}, 546, 3, 1))) << "tiles of 3x3 pixels";
}

}  // namespace
}  // namespace pushpull
