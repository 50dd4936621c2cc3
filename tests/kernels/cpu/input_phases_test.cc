#include "kernels/cpu/input_phases.h"

#include <map>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

// A tap reads an input pixel for an output pixel. All are numbers in their tensors, [h, w] or
// [n, h, w].
using Read = std::tuple<int64_t, int64_t, int64_t>;  // input row, tap, output row

// Goes through the output pixels and the taps, as the formula of a convolution does.
std::map<Read, int> ReadsOfConvolution(const ConvolutionShape& shape) {
  const Shape in = shape.in, out = shape.out();
  std::map<Read, int> reads;
  for (int64_t row = 0; row < out.rows(); ++row) {
    const int64_t n = row / (out.h * out.w), oh = row / out.w % out.h, ow = row % out.w;
    for (int i = 0; i < shape.kernel; ++i) {
      for (int j = 0; j < shape.kernel; ++j) {
        const int64_t h = oh * shape.stride + i - shape.padding.top;
        const int64_t w = ow * shape.stride + j - shape.padding.left;
        if (h < 0 || h >= in.h || w < 0 || w >= in.w) continue;
        ++reads[{(n * in.h + h) * in.w + w, i * shape.kernel + j, row}];
      }
    }
  }
  return reads;
}

// Goes through the pixels and the taps of each phase.
std::map<Read, int> ReadsOfPhases(const ConvolutionShape& shape) {
  const Shape out = shape.out();
  std::map<Read, int> reads;
  for (const InputPhase& phase : InputPhases(shape)) {
    for (int64_t p = 0; p < phase.pixels.rows(); ++p) {
      const int64_t n = p / (phase.pixels.h * phase.pixels.w);
      for (int64_t t = 0; t < phase.taps(); ++t) {
        const int64_t oh =
            p / phase.pixels.w % phase.pixels.h + phase.output_h - t / phase.tap_columns;
        const int64_t ow = p % phase.pixels.w + phase.output_w - t % phase.tap_columns;
        if (oh < 0 || oh >= out.h || ow < 0 || ow >= out.w) continue;
        ++reads[{phase.InputRow(p), phase.Tap(t), (n * out.h + oh) * out.w + ow}];
      }
    }
  }
  return reads;
}

TEST(InputPhases, HaveEachPixelOnceAndEachReadOnce) {
  for (const int kernel : {1, 2, 3, 5}) {
    for (const int stride : {1, 2, 3, 4}) {
      for (int top = 0; top < kernel; ++top) {
        const ConvolutionShape shape{
            {2, 7, 6, 3}, 5, kernel, stride, {top, kernel - 1 - top, kernel / 2, kernel / 2}};
        SCOPED_TRACE(testing::Message() << "kernel " << kernel << ", stride " << stride
                                        << ", padding at the top " << top);
        EXPECT_EQ(ReadsOfPhases(shape), ReadsOfConvolution(shape));
        std::map<int64_t, int> pixels;
        for (const InputPhase& phase : InputPhases(shape)) {
          for (int64_t p = 0; p < phase.pixels.rows(); ++p) ++pixels[phase.InputRow(p)];
        }
        EXPECT_EQ(std::ssize(pixels), shape.in.rows());
        EXPECT_THAT(pixels, testing::Each(testing::Pair(testing::_, 1)));
      }
    }
  }
}

TEST(InputPhases, OfStrideOneAreOneWithAllPixelsAndTaps) {
  const std::vector<InputPhase> phases = InputPhases({{2, 7, 6, 3}, 5, 3, 1, {1, 1, 1, 1}});
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].pixels, (Shape{2, 7, 6, 3}));
  EXPECT_EQ(phases[0].taps(), 9);
}

TEST(InputPhases, AKernelSmallerThanTheStrideLeavesPhasesWithoutTaps) {
  const std::vector<InputPhase> phases = InputPhases({{1, 8, 8, 3}, 5, 1, 2, {}});
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].taps(), 1);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(phases[i].taps(), 0) << i;
}

TEST(InputPhases, WithoutPixelsAreLeftOut) {
  // A single pixel is in the phase of the tap in the middle.
  const std::vector<InputPhase> phases = InputPhases({{1, 1, 1, 3}, 5, 3, 2, {1, 1, 1, 1}});
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].taps(), 1);
  EXPECT_EQ(phases[0].Tap(0), 4);
}

}  // namespace
}  // namespace pushpull
