#include "absl/strings/str_cat.h"

#include "tests/testkit/kernels/convolution_case.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

using Input = ConvolutionCase::Input;
using Norm = ConvolutionCase::Norm;

ConvolutionShape Pointwise(Shape in, int64_t out) { return {in, out, 1, 1, {}}; }

}  // namespace

void AddCase(ConvolutionCase test, std::vector<ConvolutionCase>* cases) {
  const bool dense = test.kind == ConvolutionCase::Kind::kDense;
  test.name = absl::StrCat(dense ? "dense/" : "depthwise/", cases->size(), " ", test.shape.in.n,
                           "x", test.shape.in.h, "x", test.shape.in.w, "x", test.shape.in.c,
                           dense ? absl::StrCat("->", test.shape.out_channels) : "", " k",
                           test.shape.kernel, "s", test.shape.stride);
  cases->push_back(std::move(test));
}

std::vector<ConvolutionCase> DenseCases() {
  std::vector<ConvolutionCase> cases;
  const auto add = [&](const ConvolutionCase& test) { AddCase(test, &cases); };
  // Few rows (split by panels), with channel counts that do and do not fill vectors and panels.
  for (const int64_t in : {1, 3, 8, 13, 16, 24, 40, 96}) {
    for (const int64_t out : {1, 7, 8, 16, 17, 24, 31, 104}) {
      add({.shape = Pointwise({2, 2, 2, in}, out)});
    }
  }
  add({.shape = Pointwise({1, 1, 1, 5}, 9)});
  add({.shape = Pointwise({64, 1, 1, 160}, 320)});
  add({.shape = Pointwise({5, 9, 11, 600}, 130)});
  // Many rows (split by blocks), with a partial last block.
  add({.shape = Pointwise({3, 17, 19, 24}, 16)});
  add({.shape = Pointwise({2, 21, 23, 13}, 27)});
  add({.shape = Pointwise({4, 16, 16, 144}, 24)});
  for (const Input input :
       {Input::kPlain, Input::kNormSkip, Input::kSkip, Input::kRelu, Input::kApplied}) {
    for (const Norm norm : {Norm::kNone, Norm::kBatch, Norm::kFrozen}) {
      add({.shape = Pointwise({2, 5, 7, 19}, 12),
           .input = input,
           .output = norm,
           .add = input != Input::kRelu});
      add({.shape = Pointwise({2, 16, 15, 16}, 40),
           .input = input,
           .output = norm,
           .add = input == Input::kRelu});
    }
  }
  // A fully connected layer with bias.
  add({.shape = Pointwise({7, 1, 1, 50}, 11),
       .input = Input::kPlain,
       .output = Norm::kNone,
       .bias = true});
  add({.shape = Pointwise({500, 1, 1, 30}, 10),
       .input = Input::kRelu,
       .output = Norm::kNone,
       .bias = true});
  // Larger kernels: the stem, predictors, asymmetric padding, padding other than SAME, and pixels
  // that no output reads.
  add({.shape = SameConvolution({2, 32, 32, 3}, 32, 3, 2),
       .input = Input::kPlain,
       .input_gradient = false});
  add({.shape = SameConvolution({2, 5, 7, 3}, 10, 3, 2), .input = Input::kPlain});
  add({.shape = SameConvolution({1, 6, 4, 9}, 8, 3, 1), .output = Norm::kNone, .bias = true});
  add({.shape = SameConvolution({2, 8, 8, 12}, 16, 3, 2), .add = true});
  add({.shape = SameConvolution({2, 24, 26, 10}, 20, 3, 2), .output = Norm::kFrozen});
  add({.shape = SameConvolution({2, 6, 6, 5}, 7, 5, 1), .input = Input::kNormSkip});
  add({.shape = {{2, 9, 9, 6}, 5, 3, 2, {}}, .output = Norm::kNone});
  add({.shape = {{1, 6, 6, 4}, 6, 3, 3, {1, 1, 1, 1}}});
  add({.shape = {{2, 7, 6, 4}, 6, 1, 2, {}}});
  return cases;
}

std::vector<ConvolutionCase> DepthwiseCases() {
  std::vector<ConvolutionCase> cases;
  const auto add = [&](ConvolutionCase test) {
    test.kind = ConvolutionCase::Kind::kDepthwise;
    AddCase(test, &cases);
  };
  for (const int stride : {1, 2}) {
    for (const int64_t channels : {1, 8, 13, 70}) {
      for (const Shape& in : {Shape{2, 1, 1, channels}, Shape{1, 2, 2, channels},
                              Shape{3, 5, 7, channels}, Shape{2, 6, 4, channels}}) {
        add({.shape = SameConvolution(in, channels, 3, stride)});
      }
    }
    // Several bands and several groups of samples.
    add({.shape = SameConvolution({2, 50, 48, 40}, 40, 3, stride)});
    add({.shape = SameConvolution({9, 16, 16, 96}, 96, 3, stride)});
    add({.shape = {{2, 7, 9, 24}, 24, 3, stride, {1, 1, 1, 1}}});
    add({.shape = {{2, 7, 8, 10}, 10, 3, stride, {}}, .output = Norm::kNone});
    add({.shape = {{2, 6, 6, 10}, 10, 3, stride, {0, 2, 2, 0}}});
    for (const Input input :
         {Input::kPlain, Input::kNormSkip, Input::kSkip, Input::kRelu, Input::kApplied}) {
      for (const Norm norm : {Norm::kNone, Norm::kFrozen}) {
        add({.shape = SameConvolution({2, 5, 4, 20}, 20, 3, stride),
             .input = input,
             .output = norm,
             .add = norm == Norm::kNone});
      }
    }
    add({.shape = SameConvolution({2, 4, 5, 9}, 9, 2, stride)});
    add({.shape = SameConvolution({2, 4, 5, 9}, 9, 1, stride)});
    add({.shape = SameConvolution({2, 4, 5, 9}, 9, 3, stride), .input_gradient = false});
  }
  for (const int kernel : {4, 5, 7}) {
    for (const int stride : {1, 2, 3}) {
      add({.shape = SameConvolution({2, 9, 8, 13}, 13, kernel, stride)});
      add({.shape = SameConvolution({3, 2, 3, 16}, 16, kernel, stride), .output = Norm::kFrozen});
      add({.shape = SameConvolution({2, 30, 29, 40}, 40, kernel, stride), .input = Input::kRelu});
    }
  }
  add({.shape = SameConvolution({2, 8, 8, 9}, 9, 3, 3)});
  add({.shape = SameConvolution({2, 8, 7, 9}, 9, 2, 3)});
  return cases;
}

}  // namespace pushpull
