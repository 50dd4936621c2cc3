// Compares convolutions of the CUDA backend with the reference in double, with operands rounded to
// the type in which the backend stores them.
#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "kernels/cuda/cuda_operators.h"
#include "kernels/cuda/pointwise_backward.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/convolution_case.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using Input = ConvolutionCase::Input;
using Norm = ConvolutionCase::Norm;

// Shapes with several tiles per image, several images per tile, and more tiles than blocks. Channel
// counts do and do not fill groups of eight and slabs.
std::vector<ConvolutionCase> TileCases() {
  std::vector<ConvolutionCase> cases;
  const auto add = [&](ConvolutionCase test) {
    test.kind = ConvolutionCase::Kind::kDepthwise;
    AddCase(test, &cases);
  };
  for (const int stride : {1, 2}) {
    add({.shape = SameConvolution({2, 37, 29, 72}, 72, 3, stride)});
    add({.shape = SameConvolution({1, 56, 57, 16}, 16, 3, stride), .output = Norm::kFrozen});
    add({.shape = SameConvolution({3, 14, 14, 104}, 104, 3, stride), .add = true});
    add({.shape = SameConvolution({19, 7, 7, 32}, 32, 3, stride)});
    add({.shape = SameConvolution({2, 15, 16, 40}, 40, 3, stride),
         .input = Input::kApplied,
         .add = true});
    add({.shape = SameConvolution({2, 15, 16, 24}, 24, 3, stride), .input = Input::kNormSkip});
    add({.shape = SameConvolution({2, 9, 8, 24}, 24, 3, stride),
         .input = Input::kSkip,
         .output = Norm::kNone});
    add({.shape = SameConvolution({2, 9, 8, 24}, 24, 3, stride),
         .input = Input::kRelu,
         .output = Norm::kFrozen});
    add({.shape = SameConvolution({2, 9, 8, 24}, 24, 3, stride), .input = Input::kPlain});
    add({.shape = SameConvolution({2, 9, 8, 24}, 24, 3, stride), .input_gradient = false});
    // Padding as in torchvision, no padding, more padding than the kernel reaches, and padding on
    // one side.
    add({.shape = {{2, 17, 18, 24}, 24, 3, stride, {1, 1, 1, 1}}});
    add({.shape = {{2, 16, 19, 24}, 24, 3, stride, {}}});
    add({.shape = {{2, 9, 11, 8}, 8, 3, stride, {4, 3, 5, 3}}});
    add({.shape = {{2, 9, 11, 8}, 8, 3, stride, {0, 3, 2, 0}}});
    // Outputs that only read padding, and pixels that no output reads.
    add({.shape = {{1, 3, 40, 8}, 8, 3, stride, {0, 0, 0, 0}}});
    add({.shape = {{3, 1, 1, 8}, 8, 3, stride, {2, 2, 2, 2}}});
    add({.shape = SameConvolution({2, 21, 20, 37}, 37, 3, stride)});
    add({.shape = SameConvolution({2, 10, 9, 16}, 16, 5, stride), .add = true});
  }
  add({.shape = SameConvolution({2, 12, 13, 16}, 16, 5, 3)});
  add({.shape = {{2, 12, 13, 33}, 33, 4, 2, {3, 0, 1, 2}}, .input = Input::kApplied});
  return cases;
}

// Dense convolutions with several tiles of rows and of columns, with reductions that end inside a
// chunk, and with weights that do and do not stay in shared memory.
std::vector<ConvolutionCase> DenseTileCases() {
  std::vector<ConvolutionCase> cases;
  const auto pointwise = [](Shape in, int64_t out) { return ConvolutionShape{in, out, 1, 1, {}}; };
  const auto add = [&](const ConvolutionCase& test) { AddCase(test, &cases); };
  add({.shape = pointwise({2, 13, 11, 24}, 144), .add = true});
  add({.shape = pointwise({3, 15, 9, 144}, 24), .input = Input::kNormRelu6});
  add({.shape = pointwise({2, 12, 10, 32}, 192), .input = Input::kNormSkip, .add = true});
  add({.shape = pointwise({1, 14, 14, 64}, 392), .output = Norm::kFrozen});
  add({.shape = pointwise({1, 14, 13, 384}, 64), .input = Input::kApplied});
  add({.shape = pointwise({1, 9, 15, 72}, 136), .input = Input::kRelu, .output = Norm::kNone});
  add({.shape = pointwise({2, 7, 7, 160}, 320)});
  add({.shape = pointwise({1, 5, 7, 576}, 40), .input_gradient = false});
  add({.shape = pointwise({5, 1, 1, 1280}, 35),
       .input = Input::kPlain,
       .output = Norm::kNone,
       .bias = true});
  add({.shape = pointwise({1, 20, 31, 8}, 8)});
  add({.shape = SameConvolution({2, 20, 21, 3}, 32, 3, 2),
       .input = Input::kPlain,
       .input_gradient = false});
  add({.shape = SameConvolution({1, 19, 19, 24}, 72, 3, 1), .output = Norm::kNone, .bias = true});
  add({.shape = SameConvolution({2, 11, 10, 40}, 80, 3, 2), .add = true});
  add({.shape = SameConvolution({1, 5, 6, 320}, 64, 3, 1)});
  // The class predictors of SSD with three anchors and 91 classes.
  add({.shape = SameConvolution({2, 5, 4, 24}, 273, 3, 1), .output = Norm::kNone, .bias = true});
  add({.shape = SameConvolution({1, 7, 6, 13}, 91, 3, 2), .input = Input::kNormSkip, .add = true});
  add({.shape = {{2, 12, 9, 16}, 24, 3, 2, {1, 1, 1, 1}}});
  return cases;
}

// Pointwise convolutions whose two gradients one kernel computes.
std::vector<ConvolutionCase> FusedBackwardCases() {
  std::vector<ConvolutionCase> cases;
  const auto add = [&](Shape in, int64_t out, ConvolutionCase test) {
    test.shape = {in, out, 1, 1, {}};
    AddCase(test, &cases);
  };
  add({2, 23, 17, 16}, 96, {.input = Input::kPlain});
  add({2, 23, 17, 24}, 72, {});
  add({2, 25, 17, 40}, 24, {.input = Input::kApplied, .add = true});
  add({3, 17, 19, 16}, 96, {.input = Input::kNormSkip, .output = Norm::kFrozen, .add = true});
  add({2, 21, 20, 72}, 8, {.input = Input::kRelu, .output = Norm::kNone});
  add({1, 32, 31, 64}, 384, {});
  return cases;
}

// The tolerance for the norm of the error. Single elements may be further off.
template <typename T>
constexpr double kTolerance = std::is_same_v<T, float> ? 1e-5 : 1e-2;
constexpr double kElementFactor = 4;

class CudaConvolution : public DeviceFixture<testing::TestWithParam<ConvolutionCase>> {
 protected:
  template <typename T>
  void ExpectMatchesReference() {
    const std::unique_ptr<Operators<T>> operators = MakeCudaOperators<T>(queue());
    const std::unique_ptr<Operators<double>> reference = MakeReferenceOperators<double>();
    const auto expected = RunCase<double, T>(GetParam(), reference.get());
    const auto actual = RunCase<T>(GetParam(), operators.get(), memory());
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].name, actual[i].name);
      const std::string label = absl::StrCat(GetParam().name, " ", expected[i].name);
      // With only one or two terms, the terms of a sum may cancel.
      const double tolerance = kTolerance<T> * (expected[i].values.size() < 3 ? 5 : 1);
      ExpectCloseInNorm(label, expected[i].values, actual[i].values, tolerance);
      ExpectClose(label, expected[i].values, actual[i].values, kElementFactor * tolerance);
    }
    // Runs again; in the emulation, with the threads of a block in other orders.
    for (const Order order : {Order::kBackward, Order::kShuffled}) {
      SetOrder(order);
      const auto again = RunCase<T>(GetParam(), operators.get(), memory());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].values, again[i].values)
            << GetParam().name << " " << actual[i].name << ": differs in a second run";
      }
    }
  }
};

TEST_P(CudaConvolution, FloatMatchesTheReference) { ExpectMatchesReference<float>(); }
TEST_P(CudaConvolution, Bfloat16MatchesTheReference) { ExpectMatchesReference<Bfloat16>(); }

// A device with as little shared memory as the smallest GPUs, and channels whose coefficients do
// not fit into it.
class CudaConvolutionOnSmallDevice : public CudaConvolution {
 protected:
  void SetUp() override {
    CudaConvolution::SetUp();
    queue()->shared_bytes_limit = 64 * 1024;
  }
};

TEST_P(CudaConvolutionOnSmallDevice, FloatMatchesTheReference) {
  ExpectMatchesReference<float>();
  EXPECT_EQ(queue()->error, cudaSuccess) << queue()->failed_call;
}
TEST_P(CudaConvolutionOnSmallDevice, Bfloat16MatchesTheReference) {
  ExpectMatchesReference<Bfloat16>();
  EXPECT_EQ(queue()->error, cudaSuccess) << queue()->failed_call;
}

// Runs the cases as on a GPU with two multiprocessors. There, whatever GPU runs the test, each
// block works on several tiles even of small operands, and the fused kernels are chosen.
class CudaConvolutionOnTwoMultiprocessors : public CudaConvolution {
 protected:
  void SetUp() override {
    CudaConvolution::SetUp();
    queue()->multiprocessors = 2;
  }
};

TEST_P(CudaConvolutionOnTwoMultiprocessors, FloatMatchesTheReference) {
  ExpectMatchesReference<float>();
}
TEST_P(CudaConvolutionOnTwoMultiprocessors, Bfloat16MatchesTheReference) {
  ExpectMatchesReference<Bfloat16>();
}

std::vector<ConvolutionCase> ManyChannelCases() {
  std::vector<ConvolutionCase> cases;
  AddCase({.shape = {{1, 3, 4, 1280}, 136, 1, 1, {}}}, &cases);
  AddCase({.shape = {{1, 3, 4, 136}, 1280, 1, 1, {}}}, &cases);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(ManyChannels, CudaConvolutionOnSmallDevice,
                         testing::ValuesIn(ManyChannelCases()));

class CudaFusedBackward : public DeviceFixture<testing::TestWithParam<ConvolutionCase>> {};

TEST_P(CudaFusedBackward, IsUsed) {
  for (const int multiprocessors : {2, 4}) {
    queue()->multiprocessors = multiprocessors;
    EXPECT_TRUE(PointwiseBackwardPays(*queue(), GetParam().shape)) << multiprocessors;
  }
  EXPECT_FALSE(PointwiseBackwardPays(*queue(), SameConvolution(GetParam().shape.in, 32, 3, 1)));
}

INSTANTIATE_TEST_SUITE_P(Pointwise, CudaFusedBackward, testing::ValuesIn(FusedBackwardCases()));
INSTANTIATE_TEST_SUITE_P(FusedBackward, CudaConvolutionOnTwoMultiprocessors,
                         testing::ValuesIn(FusedBackwardCases()));
INSTANTIATE_TEST_SUITE_P(DenseTiles, CudaConvolutionOnTwoMultiprocessors,
                         testing::ValuesIn(DenseTileCases()));
INSTANTIATE_TEST_SUITE_P(DepthwiseTiles, CudaConvolutionOnTwoMultiprocessors,
                         testing::ValuesIn(TileCases()));
INSTANTIATE_TEST_SUITE_P(FusedBackward, CudaConvolution, testing::ValuesIn(FusedBackwardCases()));
INSTANTIATE_TEST_SUITE_P(Dense, CudaConvolution, testing::ValuesIn(DenseCases()));
INSTANTIATE_TEST_SUITE_P(DenseTiles, CudaConvolution, testing::ValuesIn(DenseTileCases()));
INSTANTIATE_TEST_SUITE_P(Depthwise, CudaConvolution, testing::ValuesIn(DepthwiseCases()));
INSTANTIATE_TEST_SUITE_P(DepthwiseTiles, CudaConvolution, testing::ValuesIn(TileCases()));

class CudaConvolutionLimits : public DeviceFixture<testing::Test> {};

// Nothing is launched, so no operand needs memory.
TEST_F(CudaConvolutionLimits, MorePixelsThanAnIntCanNumberAreAnError) {
  const ConvolutionShape pixels_in = SameConvolution({int64_t{1} << 31, 1, 1, 8}, 8, 1, 1);
  const ConvolutionShape pixels_out = {{int64_t{1} << 29, 1, 1, 8}, 8, 1, 1, {1, 1, 1, 1}};
  for (const ConvolutionShape& shape : {pixels_in, pixels_out}) {
    for (const bool forward : {true, false}) {
      Queue queue;
      const auto operators = MakeCudaOperators<Bfloat16>(&queue);
      const Workspace workspace{nullptr, operators->ConvolutionWorkspace(shape)};
      EXPECT_EQ(workspace.bytes, 0);
      if (forward) {
        operators->Convolution(shape, {shape.in}, nullptr, nullptr, nullptr, {}, workspace);
      } else {
        operators->ConvolutionBackward(shape, {shape.in}, nullptr, {}, nullptr, nullptr, {},
                                       workspace);
      }
      EXPECT_EQ(queue.error, cudaErrorInvalidValue);
      EXPECT_STREQ(queue.failed_call, "convolution of about 2^31 or more pixels in one batch");
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
