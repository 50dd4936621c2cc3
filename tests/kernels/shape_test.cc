#include "kernels/shape.h"

#include "gtest/gtest.h"

#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

TEST(Shape, SamePaddingIsAsymmetricAtStrideTwo) {
  struct Case {
    int64_t in, out;
    int before, after;
  };
  // The convolutions with a 3x3 kernel and stride 2 in a detector for 300 x 300 pixels.
  for (const Case& c : {Case{300, 150, 0, 1}, Case{150, 75, 0, 1}, Case{75, 38, 1, 1},
                        Case{38, 19, 0, 1}, Case{19, 10, 1, 1}, Case{10, 5, 0, 1}, Case{5, 3, 1, 1},
                        Case{3, 2, 1, 1}, Case{2, 1, 0, 1}}) {
    const ConvolutionShape shape = SameConvolution({1, c.in, 2 * c.in, 8}, 16, 3, 2);
    EXPECT_EQ(shape.out_h(), c.out) << c.in;
    EXPECT_EQ(shape.out_w(), c.in) << c.in;
    EXPECT_EQ(shape.padding.top, c.before) << c.in;
    EXPECT_EQ(shape.padding.bottom, c.after) << c.in;
    EXPECT_EQ(shape.padding.left, 0) << c.in;
    EXPECT_EQ(shape.padding.right, 1) << c.in;
  }
}

TEST(Shape, CountsWeights) {
  const ConvolutionShape shape = SameConvolution({4, 5, 6, 7}, 9, 3, 1);
  EXPECT_EQ(shape.dense_weights(), 3 * 3 * 7 * 9);
  EXPECT_EQ(shape.depthwise_weights(), 3 * 3 * 7);
  EXPECT_EQ(shape.out(), (Shape{4, 5, 6, 9}));
  EXPECT_EQ(shape.padding, (Padding{1, 1, 1, 1}));
}

TEST(Shape, CheckConvolutionAcceptsWhatNetworksHave) {
  CheckConvolution(SameConvolution({1, 1, 1, 8}, 8, 3, 2));
  CheckConvolution(SameConvolution({1, 5, 7, 8}, 8, 1, 3));
  CheckConvolution({{1, 1, 1, 8}, 8, 3, 1, {2, 0, 0, 2}});
  CheckConvolution({{1, 3, 4, 8}, 8, 3, 2, {}});
}

TEST(Shape, CheckConvolutionRefusesWindowsBesideTheInput) {
  for (const Padding& padding :
       {Padding{3, 0, 0, 0}, Padding{0, 3, 0, 0}, Padding{0, 0, 3, 0}, Padding{0, 0, 0, 3}}) {
    EXPECT_DEATH(CheckConvolution({{1, 4, 4, 8}, 8, 3, 1, padding}),
                 "a padding of 3 pixels for a kernel of 3");
  }
  EXPECT_DEATH(CheckConvolution({{1, 4, 4, 8}, 8, 3, 1, {0, -1, 0, 0}}), "a padding of -1 pixels");
  EXPECT_DEATH(CheckConvolution({{1, 2, 4, 8}, 8, 3, 1, {}}),
               "a kernel of 3 does not fit into an input of 2x4 pixels");
  EXPECT_DEATH(CheckConvolution({{1, 4, 1, 8}, 8, 3, 2, {0, 0, 0, 1}}), "does not fit");
}

}  // namespace
}  // namespace pushpull
