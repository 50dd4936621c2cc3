// Compares the fast path with the reference, and with itself for different numbers of threads.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/each_cpu_isa.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/convolution_case.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

class FastConvolution : public testing::TestWithParam<ConvolutionCase> {
 protected:
  FastConvolution() { UseCpuIsa(AvailableCpuIsas().back()); }
};

void ExpectSameBits(const std::vector<NamedTensor>& expected,
                    const std::vector<NamedTensor>& actual, const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].values, actual[i].values) << label << " " << expected[i].name;
  }
}

void ExpectMatchesReference(const ConvolutionCase& test) {
  ThreadPool pool(2);
  const auto fast = MakeFastOperators(&pool);
  const auto reference = MakeReferenceOperators<float>();
  const auto expected = RunCase(test, reference.get()), actual = RunCase(test, fast.get());
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].name, actual[i].name);
    ExpectClose(absl::StrCat(test.name, " ", expected[i].name), expected[i].values,
                actual[i].values, 3e-5);
  }
}

TEST_P(FastConvolution, MatchesReference) { ExpectMatchesReference(GetParam()); }

// Values are rounded to 8 bits when they are stored and when a product reads them, and the errors
// of a sum's terms are independent of each other.
void ExpectBfloat16MatchesReference(const ConvolutionCase& test) {
  constexpr double kTolerance = 1e-2, kElementFactor = 5;
  ThreadPool pool(2);
  const auto fast = MakeFastOperators<Bfloat16>(&pool);
  const auto reference = MakeReferenceOperators<double>();
  const auto expected = RunCase<double, Bfloat16>(test, reference.get()),
             actual = RunCase(test, fast.get());
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].name, actual[i].name);
    const std::string label = absl::StrCat(test.name, " ", expected[i].name);
    // The norm of very few values says no more than the largest of them.
    const double tolerance = kTolerance * (expected[i].values.size() < 3 ? kElementFactor : 1);
    ExpectCloseInNorm(label, expected[i].values, actual[i].values, tolerance);
    ExpectClose(label, expected[i].values, actual[i].values, kElementFactor * tolerance);
  }
}

TEST_P(FastConvolution, Bfloat16MatchesReference) { ExpectBfloat16MatchesReference(GetParam()); }

template <typename T>
void ExpectThreadsDoNotMatter(const ConvolutionCase& test) {
  ThreadPool one(1), three(3);
  ExpectSameBits(RunCase(test, MakeFastOperators<T>(&one).get()),
                 RunCase(test, MakeFastOperators<T>(&three).get()), test.name);
}

TEST_P(FastConvolution, DoesNotDependOnTheNumberOfThreads) {
  ExpectThreadsDoNotMatter<float>(GetParam());
  ExpectThreadsDoNotMatter<Bfloat16>(GetParam());
}

template <typename T>
void ExpectInstructionSetsDoNotMatter(const ConvolutionCase& test) {
  ThreadPool pool(2);
  const auto fast = MakeFastOperators<T>(&pool);
  const CpuIsa common = BestCpuIsaWithoutTiles();
  UseCpuIsa(common);
  const auto best = RunCase(test, fast.get());
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    const auto actual = RunCase(test, fast.get());
    UseCpuIsa(AvailableCpuIsas().back());
    const std::string label = absl::StrCat(test.name, " with ", CpuIsaName(isa));
    if (RoundAlike<T>(isa, common)) {
      ExpectSameBits(best, actual, label);
      continue;
    }
    for (size_t i = 0; i < best.size(); ++i) {
      ExpectClose(absl::StrCat(label, " ", best[i].name), best[i].values, actual[i].values,
                  sizeof(T) == sizeof(float) ? 3e-5 : 5e-2);
    }
  }
}

TEST_P(FastConvolution, DoesNotDependOnTheInstructionSet) {
  ExpectInstructionSetsDoNotMatter<float>(GetParam());
  ExpectInstructionSetsDoNotMatter<Bfloat16>(GetParam());
}

// AVX512-BF16 rounds denormal numbers to zero. With these operands many products and sums are a
// little above or below the least number that is not denormal, about 1e-38.
TEST_P(FastConvolution, DoesNotDependOnTheInstructionSetWhereResultsAreDenormal) {
  ConvolutionCase test = GetParam();
  if (test.input != ConvolutionCase::Input::kSkip && test.input != ConvolutionCase::Input::kRelu) {
    test.input = ConvolutionCase::Input::kPlain;
  }
  test.output = ConvolutionCase::Norm::kNone;
  ThreadPool pool(2);
  const auto fast = MakeFastOperators<Bfloat16>(&pool);
  std::vector<CpuIsa> isas = AvailableCpuIsas();
  std::erase_if(isas,
                [](CpuIsa isa) { return !HasFusedMultiplyAdd(isa) || MultipliesInTiles(isa); });
  for (const double scale : {1e-19, 1e-39}) {
    test.scale = scale;
    std::vector<std::vector<NamedTensor>> results;
    for (const CpuIsa isa : isas) {
      UseCpuIsa(isa);
      results.push_back(RunCase(test, fast.get()));
      UseCpuIsa(AvailableCpuIsas().back());
      ExpectSameBits(results.front(), results.back(),
                     absl::StrCat(test.name, " with ", CpuIsaName(isa), ", ", scale));
    }
  }
}

// Products of pairs and of floats, one of which MakeFastOperators chooses, round alike, unless the
// pairs are multiplied in tiles. SSE4 has no fused multiply-adds, but here each product of two
// numbers fits into a float.
TEST_P(FastConvolution, DoesNotDependOnWhatProductsRead) {
  ThreadPool pool(2);
  const auto pairs = MakeFastOperatorsOf<Bfloat16>(&pool);
  const auto floats = MakeFastOperatorsOf<BfloatAsFloat>(&pool);
  for (const CpuIsa isa : AvailableCpuIsas()) {
    if (MultipliesInTiles(isa)) continue;
    UseCpuIsa(isa);
    ExpectSameBits(RunCase(GetParam(), pairs.get()), RunCase(GetParam(), floats.get()),
                   absl::StrCat(GetParam().name, " with ", CpuIsaName(isa)));
    UseCpuIsa(AvailableCpuIsas().back());
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, FastConvolution, testing::ValuesIn(DenseCases()));

// Many rows of patches that are too long for a cache (Cut::kBySlices), also in the phases of a
// stride, with channels that do not fill slices and panels. The last case is by minimal filtering
// with several blocks per image, of different sizes, whose statistics are combined.
std::vector<ConvolutionCase> LongPatchCases() {
  std::vector<ConvolutionCase> cases;
  AddCase({.shape = SameConvolution({3, 13, 14, 91}, 93, 3, 1),
           .output = ConvolutionCase::Norm::kNone,
           .bias = true,
           .add = true},
          &cases);
  AddCase({.shape = SameConvolution({3, 25, 24, 83}, 97, 3, 2)}, &cases);
  AddCase({.shape = SameConvolution({2, 30, 29, 131}, 131, 3, 2), .add = true}, &cases);
  AddCase({.shape = SameConvolution({2, 15, 14, 64}, 128, 3, 1), .input_gradient = false}, &cases);
  AddCase({.shape = SameConvolution({1, 33, 34, 64}, 64, 3, 1)}, &cases);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(LongPatches, FastConvolution, testing::ValuesIn(LongPatchCases()));
INSTANTIATE_TEST_SUITE_P(Depthwise, FastConvolution, testing::ValuesIn(DepthwiseCases()));

// Tensors of 131072 rows, which are written past the caches from 8 MiB on if their rows are whole
// cache lines.
std::vector<ConvolutionCase> LargeCases(int channels) {
  const Shape in{1, 512, 256, channels};
  std::vector<ConvolutionCase> cases;
  AddCase({.shape = SameConvolution(in, channels, 1, 1), .bias = true}, &cases);
  AddCase({.kind = ConvolutionCase::Kind::kDepthwise, .shape = SameConvolution(in, channels, 3, 1)},
          &cases);
  return cases;
}

TEST(LargeTensors, MatchTheReference) {
  for (const ConvolutionCase& test : LargeCases(16)) ExpectMatchesReference(test);
}

TEST(LargeTensors, Bfloat16MatchesTheReference) {
  const CpuIsa best = AvailableCpuIsas().back();
  if (!HasAvx512(best)) {
    GTEST_SKIP() << "Bfloat16 is written past the caches with AVX-512 only";
  }
  ExpectBfloat16MatchesReference(LargeCases(32).front());
}

}  // namespace
}  // namespace pushpull
