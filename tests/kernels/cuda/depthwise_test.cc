// Properties of the depthwise kernels that random cases against the reference do not show.
#include "kernels/cuda/depthwise.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cuda/depthwise_plan.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

class Depthwise : public DeviceFixture<testing::Test> {
 protected:
  struct Outputs {
    std::vector<float> y, mean, variance, dweights, dx, dbeta, dgamma;
  };

  // Runs forward and backward with batch norm and ReLU6 before the convolution.
  Outputs Run(const ConvolutionShape& shape, const std::vector<float>& raw) {
    const Operand<float> x_raw(memory(), raw),
        weights(memory(), RandomNumbers<float>(9 * shape.in.c, 1)),
        gamma(memory(), std::vector<float>(shape.in.c, 1.25f)),
        beta(memory(), std::vector<float>(shape.in.c, 0.5f)),
        in_mean(memory(), std::vector<float>(shape.in.c, 0.25f)),
        in_variance(memory(), std::vector<float>(shape.in.c, 2.0f)),
        dz(memory(), RandomNumbers<float>(shape.out().size(), 2)), y(memory(), shape.out().size()),
        mean(memory(), shape.in.c), variance(memory(), shape.in.c),
        dweights(memory(), 9 * shape.in.c), dx(memory(), shape.in.size()),
        dbeta(memory(), shape.in.c), dgamma(memory(), shape.in.c);
    const BatchNorm<float> norm{gamma.data(),       beta.data(), in_mean.data(),
                                in_variance.data(), 1e-3,        Statistics::kBatch};
    const Lazy<float> x{shape.in, x_raw.data(), &norm, FusedActivation::kRelu6, nullptr, nullptr};
    const GuardedBlock workspace(memory(), DepthwiseWorkspaceBytes(*queue(), shape));
    DepthwiseForward<float>(queue(), shape, x, weights.data(), y.data(),
                            {mean.data(), variance.data()}, workspace.data());
    DepthwiseBackward<float>(queue(), shape, x, weights.data(), {dz.data()}, dweights.data(),
                             {dx.data(), nullptr, dbeta.data(), dgamma.data()}, workspace.data());
    workspace.CheckGuards("workspace");
    return {
        y.Read("y"),   mean.Read("mean"),   variance.Read("variance"), dweights.Read("dweights"),
        dx.Read("dx"), dbeta.Read("dbeta"), dgamma.Read("dgamma")};
  }

  // Returns mean and variance of the output of a convolution that copies its input: only the centre
  // of its kernel is set.
  template <typename T>
  void ExpectStatistics(int64_t channels, const std::vector<T>& raw, float mean, float variance) {
    const Shape in{static_cast<int64_t>(raw.size()) / 12 / 11 / channels, 12, 11, channels};
    std::vector<float> centre(9 * channels, 0.0f);
    std::fill(centre.begin() + 4 * channels, centre.begin() + 5 * channels, 1.0f);
    const Operand<T> x(memory(), raw), y(memory(), in.size());
    const Operand<float> weights(memory(), centre), means(memory(), channels),
        variances(memory(), channels);
    const ConvolutionShape shape = SameConvolution(in, channels, 3, 1);
    const GuardedBlock workspace(memory(), DepthwiseWorkspaceBytes(*queue(), shape));
    DepthwiseForward<T>(
        queue(), shape, {in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr},
        weights.data(), y.data(), {means.data(), variances.data()}, workspace.data());
    ExpectClose("mean", std::vector<float>(channels, mean), means.Read("mean"), 1e-6);
    ExpectClose("variance", std::vector<float>(channels, variance), variances.Read("variance"),
                1e-5);
  }
};

TEST_F(Depthwise, FewBlocksWithManyTilesGiveTheSameResult) {
  for (const int stride : {1, 2}) {
    for (const Shape& in : {Shape{3, 30, 31, 40}, Shape{40, 5, 6, 8}, Shape{2, 9, 9, 13}}) {
      const ConvolutionShape shape = SameConvolution(in, in.c, 3, stride);
      const std::vector<float> raw = RandomNumbers<float>(in.size(), 3);
      queue()->multiprocessors = 64;
      const Outputs many = Run(shape, raw);
      queue()->multiprocessors = 1;
      const Outputs few = Run(shape, raw);
      const std::string label =
          absl::StrCat(in.n, "x", in.h, "x", in.w, "x", in.c, " stride ", stride, " ");
      EXPECT_EQ(many.y, few.y) << label;
      EXPECT_EQ(many.dx, few.dx) << label;
      ExpectCloseInNorm(label + "mean", many.mean, few.mean, 1e-6);
      ExpectCloseInNorm(label + "variance", many.variance, few.variance, 1e-6);
      ExpectCloseInNorm(label + "dweights", many.dweights, few.dweights, 2e-6);
      ExpectCloseInNorm(label + "dbeta", many.dbeta, few.dbeta, 2e-6);
      ExpectCloseInNorm(label + "dgamma", many.dgamma, few.dgamma, 2e-6);
    }
  }
}

TEST_F(Depthwise, StatisticsArePreciseForALargeMean) {
  for (const int64_t channels : {16, 10}) {
    std::vector<float> far(13 * 12 * 11 * channels);
    for (size_t i = 0; i < far.size(); ++i) {
      far[i] = 4096.0f + (i / channels % 2 == 0 ? 1.0f : -1.0f);
    }
    ExpectStatistics<float>(channels, far, 4096.0f, 1.0f);
    ExpectStatistics<float>(channels, std::vector<float>(far.size(), 3.3f), 3.3f, 0.0f);
  }
}

TEST_F(Depthwise, StatisticsAreOfTheRoundedOutput) {
  // 1 + 2^-10 rounds to 1 in bfloat16, so a variance of the unrounded output would not be 0.
  const int64_t channels = 8;
  const Shape in{1, 4, 4, channels};
  std::vector<float> centre(9 * channels, 0.0f);
  std::fill(centre.begin() + 4 * channels, centre.begin() + 5 * channels, 1.0f + 1.0f / 1024);
  std::vector<Bfloat16> raw(in.size());
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = ToBfloat16(i / channels % 2 == 0 ? 1.0f : -1.0f);
  const Operand<Bfloat16> x(memory(), raw), y(memory(), in.size());
  const Operand<float> weights(memory(), centre), mean(memory(), channels),
      variance(memory(), channels);
  const ConvolutionShape shape = SameConvolution(in, channels, 3, 1);
  const GuardedBlock workspace(memory(), DepthwiseWorkspaceBytes(*queue(), shape));
  DepthwiseForward<Bfloat16>(
      queue(), shape, {in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr},
      weights.data(), y.data(), {mean.data(), variance.data()}, workspace.data());
  EXPECT_EQ(mean.Read("mean"), std::vector<float>(channels, 0.0f));
  EXPECT_EQ(variance.Read("variance"), std::vector<float>(channels, 1.0f));
}

TEST_F(Depthwise, ANanReachesExactlyTheOutputsAroundIt) {
  for (const int64_t channels : {8, 5}) {
    const ConvolutionShape shape = SameConvolution({1, 6, 6, channels}, channels, 3, 1);
    std::vector<float> raw = RandomNumbers<float>(shape.in.size(), 4);
    raw[(2 * 6 + 3) * channels + 1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = Run(shape, raw).y;
    for (int64_t i = 0; i < shape.in.size(); ++i) {
      const int64_t row = i / channels / 6, column = i / channels % 6;
      const bool near = i % channels == 1 && std::abs(row - 2) <= 1 && std::abs(column - 3) <= 1;
      EXPECT_EQ(std::isnan(y[i]), near) << "row " << row << " column " << column;
    }
  }
}

TEST_F(Depthwise, TheAddedGradientMayShareTheResultsMemory) {
  for (const int64_t channels : {16, 6}) {
    const ConvolutionShape shape = SameConvolution({2, 7, 8, channels}, channels, 3, 2);
    const Operand<float> raw(memory(), RandomNumbers<float>(shape.in.size(), 5)),
        weights(memory(), RandomNumbers<float>(9 * channels, 6)),
        dz(memory(), RandomNumbers<float>(shape.out().size(), 7)),
        add(memory(), RandomNumbers<float>(shape.in.size(), 8)), dx(memory(), shape.in.size()),
        dweights(memory(), 9 * channels);
    const GuardedBlock workspace(memory(), DepthwiseWorkspaceBytes(*queue(), shape));
    const Lazy<float> x{shape.in, raw.data(), nullptr, FusedActivation::kRelu, nullptr, nullptr};
    DepthwiseBackward<float>(queue(), shape, x, weights.data(), {dz.data()}, dweights.data(),
                             {dx.data(), add.data()}, workspace.data());
    DepthwiseBackward<float>(queue(), shape, x, weights.data(), {dz.data()}, dweights.data(),
                             {add.data(), add.data()}, workspace.data());
    EXPECT_EQ(add.Read("in place"), dx.Read("dx"));
  }
}

TEST(DepthwisePlan, CoversTheMapWithinTheLimits) {
  for (const int multiprocessors : {1, 4, 132}) {
    DefaultQueue queue;
    queue.multiprocessors = multiprocessors;
    queue.shared_bytes_limit = (multiprocessors == 1 ? 48 : 227) * 1024;
    for (const Shape& in : {Shape{1, 1, 1, 8}, Shape{64, 7, 7, 960}, Shape{16, 14, 14, 576},
                            Shape{4, 112, 112, 32}, Shape{2, 300, 150, 24}, Shape{1, 1, 2000, 8},
                            Shape{1, 2000, 1, 16}, Shape{1000, 3, 5, 144}}) {
      for (const int stride : {1, 2}) {
        ConvolutionShape shape = SameConvolution(in, in.c, 3, stride);
        shape.padding.top += 1, shape.padding.left += 1, shape.padding.right += 1;
        SCOPED_TRACE(absl::StrCat(in.n, "x", in.h, "x", in.w, "x", in.c, " stride ", stride, " on ",
                                  multiprocessors));
        const depthwise::Plan forward = depthwise::TiledForwardPlan(queue, shape);
        EXPECT_GE(int64_t{forward.row_tiles} * forward.rows, shape.out_h());
        EXPECT_GE(int64_t{forward.column_tiles} * forward.columns * 2, shape.out_w());
        for (const int element_bytes : {2, 4}) {
          const depthwise::Plan backward =
              depthwise::TiledBackwardPlan(queue, shape, element_bytes);
          const int top = shape.padding.top % stride, left = shape.padding.left % stride;
          EXPECT_GE(int64_t{backward.row_tiles} * backward.rows * stride, top + in.h);
          EXPECT_GE(int64_t{backward.column_tiles} * backward.columns * 2, left + in.w);
          if (queue.shared_bytes_limit > 48 * 1024) {
            EXPECT_LE(depthwise::kForwardResident * forward.shared_bytes, 227u * 1024);
            EXPECT_LE(depthwise::kBackwardResident * backward.shared_bytes, 227u * 1024);
          }
          for (const depthwise::Plan& plan : {forward, backward}) {
            EXPECT_GE(int64_t{plan.image_tiles} * plan.images, in.n);
            EXPECT_GE(plan.segments * plan.segment_rows, plan.rows);
            EXPECT_EQ(plan.tiles, plan.image_tiles * plan.row_tiles * plan.column_tiles);
            EXPECT_LE(plan.shared_bytes, queue.shared_bytes_limit);
            EXPECT_LE(plan.parts, plan.tiles);
            EXPECT_TRUE(plan.blocks() <= 8u * multiprocessors || plan.parts == 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
