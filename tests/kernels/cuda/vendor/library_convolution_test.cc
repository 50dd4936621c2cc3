// Convolutions whose products a library computes, compared with the reference in double: with the
// stand-ins of the libraries in emulation, and with cuDNN and cuBLASLt on a GPU that has them.
#include "kernels/cuda/vendor/library_convolution.h"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "kernels/cuda/cuda_operators.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/vendor/test_libraries.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/convolution_case.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using Input = ConvolutionCase::Input;
using Norm = ConvolutionCase::Norm;

// Every kind of operand, padding and sum that libraries are asked for: dense convolutions with a
// multiple of 8 input channels. 27, 35 and 19 output channels are padded for the product.
std::vector<ConvolutionCase> Cases() {
  std::vector<ConvolutionCase> cases;
  const auto pointwise = [](Shape in, int64_t out) { return ConvolutionShape{in, out, 1, 1, {}}; };
  const auto add = [&](const ConvolutionCase& test) { AddCase(test, &cases); };
  add({.shape = pointwise({2, 9, 7, 24}, 48), .input = Input::kNormSkip, .add = true});
  add({.shape = pointwise({1, 21, 17, 16}, 24), .output = Norm::kFrozen});
  add({.shape = pointwise({3, 5, 5, 8}, 40), .input = Input::kApplied, .add = true});
  add({.shape = pointwise({5, 1, 1, 64}, 35),
       .input = Input::kPlain,
       .output = Norm::kNone,
       .bias = true});
  add({.shape = pointwise({2, 6, 6, 16}, 32), .input_gradient = false});
  add({.shape = SameConvolution({2, 9, 8, 16}, 32, 3, 1), .input = Input::kRelu});
  add({.shape = SameConvolution({2, 5, 4, 16}, 27, 3, 1), .output = Norm::kNone, .bias = true});
  add({.shape = SameConvolution({2, 10, 9, 8}, 19, 3, 2), .add = true});
  add({.shape = {{1, 7, 6, 8}, 16, 3, 2, {1, 1, 1, 1}}, .input = Input::kSkip});
  add({.shape = {{1, 8, 6, 8}, 8, 5, 1, {0, 3, 2, 1}}});
  return cases;
}

// A case, the library, the type, and which of the library's products. The second ones of the
// stand-ins have a workspace.
struct LibraryCase {
  ConvolutionCase convolution;
  bool cudnn = true;
  int product = 0;
  bool bfloat16 = true;
};

void PrintTo(const LibraryCase& test, std::ostream* out) {
  *out << (test.cudnn ? "cuDNN " : "cuBLASLt ") << test.product
       << (test.bfloat16 ? " bfloat16 " : " float ") << test.convolution.name;
}

std::vector<LibraryCase> LibraryCases() {
  std::vector<LibraryCase> cases;
  for (const ConvolutionCase& test : Cases()) {
    const bool pointwise =
        test.shape.kernel == 1 && test.shape.stride == 1 && test.shape.padding == Padding{};
    for (const int product : {0, 1}) {
      for (const bool bfloat16 : {false, true}) {
        if (pointwise) cases.push_back({test, false, product, bfloat16});
        // The stand-in of cuDNN has one way for floats.
        if (bfloat16 || product == 0) cases.push_back({test, true, product, bfloat16});
      }
    }
  }
  return cases;
}

class LibraryConvolution : public DeviceFixture<testing::TestWithParam<LibraryCase>> {
 protected:
  // Runs the case with the library's product wherever it has one, and compares.
  template <typename T>
  void ExpectMatchesReference() {
    const ConvolutionCase& test = GetParam().convolution;
    auto library = GetParam().cudnn ? OpenTestCudnn() : OpenTestCublasLt();
    if (absl::IsNotFound(library.status())) GTEST_SKIP() << library.status();
    ASSERT_TRUE(library.ok()) << library.status();
    int queued = 0;
    ChoiceContext context;
    context.own_competes = false;
    context.product_workspace = 1 << 20;
    // Each way seems faster than those before, so that the last one is chosen: with both products.
    double milliseconds = 1.0;
    context.milliseconds = [&](Queue*, absl::FunctionRef<absl::Status()> work) {
      const absl::Status status = work();
      milliseconds /= 2;
      return status.ok() ? absl::StatusOr<double>(milliseconds) : status;
    };
    context.libraries.push_back(
        std::make_unique<CountingLibrary>(*std::move(library), GetParam().product, &queued));
    const std::unique_ptr<Operators<T>> operators = MakeCudaOperators<T>(queue(), &context);
    const std::unique_ptr<Operators<double>> reference = MakeReferenceOperators<double>();
    const auto expected = RunCase<double, T>(test, reference.get());
    const auto actual = RunCase<T>(test, operators.get(), memory());
#ifdef PUSHPULL_CUDA_EMULATION
    ASSERT_GT(queued, 0);
#else
    if (queued == 0) GTEST_SKIP() << "the library of this machine has no such way";
#endif
    ASSERT_EQ(expected.size(), actual.size());
    const double tolerance = std::is_same_v<T, float> ? 1e-5 : 1.5e-2;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].name, actual[i].name);
      const std::string label = absl::StrCat(test.name, " ", expected[i].name);
      ExpectCloseInNorm(label, expected[i].values, actual[i].values, tolerance);
      ExpectClose(label, expected[i].values, actual[i].values, 4 * tolerance);
    }
    const auto again = RunCase<T>(test, operators.get(), memory());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].values, again[i].values) << actual[i].name << " differs in a second run";
    }
  }
};

TEST_P(LibraryConvolution, MatchesTheReference) {
  if (GetParam().bfloat16) {
    ExpectMatchesReference<Bfloat16>();
  } else {
    ExpectMatchesReference<float>();
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, LibraryConvolution, testing::ValuesIn(LibraryCases()));

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
