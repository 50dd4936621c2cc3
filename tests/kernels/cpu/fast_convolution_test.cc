// Compares the fast path with the reference, and with itself for different numbers of threads.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/convolution_case.h"

namespace pushpull {
namespace {

class FastConvolution : public testing::TestWithParam<ConvolutionCase> {};

TEST_P(FastConvolution, MatchesReference) {
  ThreadPool pool(2);
  const auto fast = MakeFastOperators(&pool);
  const auto reference = MakeReferenceOperators<float>();
  const auto expected = RunCase(GetParam(), reference.get()),
             actual = RunCase(GetParam(), fast.get());
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].name, actual[i].name);
    ExpectClose(absl::StrCat(GetParam().name, " ", expected[i].name), expected[i].values,
                actual[i].values, 3e-5);
  }
}

TEST_P(FastConvolution, DoesNotDependOnTheNumberOfThreads) {
  ThreadPool one(1), three(3);
  const auto expected = RunCase(GetParam(), MakeFastOperators(&one).get());
  const auto actual = RunCase(GetParam(), MakeFastOperators(&three).get());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].values, actual[i].values) << GetParam().name << " " << expected[i].name;
  }
}

TEST_P(FastConvolution, DoesNotDependOnTheInstructionSet) {
  ThreadPool pool(2);
  const auto fast = MakeFastOperators(&pool);
  const auto best = RunCase(GetParam(), fast.get());
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    const auto actual = RunCase(GetParam(), fast.get());
    UseCpuIsa(AvailableCpuIsas().back());
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].values, actual[i].values)
          << GetParam().name << " " << best[i].name << " with " << CpuIsaName(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, FastConvolution, testing::ValuesIn(DenseCases()));
INSTANTIATE_TEST_SUITE_P(Depthwise, FastConvolution, testing::ValuesIn(DepthwiseCases()));

}  // namespace
}  // namespace pushpull
