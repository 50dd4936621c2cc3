// Closed forms and contracts that the reference and the fast path both have to fulfil.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/random.h"
#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/kernels/cpu/guarded.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/random_images.h"
#include "tests/testkit/kernels/same_convolution.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull {
namespace {

class OperatorsTest : public testing::TestWithParam<std::string> {
 protected:
  OperatorsTest()
      : pool_(2),
        operators_(GetParam() == "fast" ? MakeFastOperators(&pool_)
                                        : MakeReferenceOperators<float>()) {}

  Lazy<float> Plain(const Shape& shape, const std::vector<float>& raw) {
    return {shape, raw.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  }

  ThreadPool pool_;
  std::unique_ptr<Operators<float>> operators_;
};

TEST_P(OperatorsTest, ADepthwiseKernelWithOnlyItsCentreIsTheIdentity) {
  const Shape shape{2, 6, 5, 11};
  const auto x = RandomValues<float>(shape.size(), 1);
  std::vector<float> weights(9 * 11, 0.0f);
  std::fill(weights.begin() + 4 * 11, weights.begin() + 5 * 11, 1.0f);
  const ConvolutionShape convolution = SameConvolution(shape, 11, 3, 1);
  GuardedWorkspace workspace(operators_->DepthwiseWorkspace(convolution));
  Output<float> y(shape.size());
  operators_->DepthwiseConvolution(convolution, Plain(shape, x), weights.data(), y.data(), {},
                                   workspace.view());
  EXPECT_EQ(y.Take("identity"), x);
}

TEST_P(OperatorsTest, PaddingIsZeroAfterTheActivation) {
  // The batch norm maps every pixel to 5, so a sum over a 3x3 window counts the pixels inside the
  // image.
  const Shape shape{1, 3, 3, 1};
  const std::vector<float> x(9, 2.0f), weights(9, 1.0f), gamma{1}, beta{5}, mean{2}, variance{1};
  const BatchNorm<float> norm{gamma.data(),    beta.data(), mean.data(),
                              variance.data(), 0,           Statistics::kFrozen};
  const Lazy<float> lazy{shape, x.data(), &norm, FusedActivation::kRelu6, nullptr, nullptr};
  const ConvolutionShape convolution = SameConvolution(shape, 1, 3, 1);
  const std::vector<float> expected{20, 30, 20, 30, 45, 30, 20, 30, 20};
  GuardedWorkspace workspace(std::max(operators_->DepthwiseWorkspace(convolution),
                                      operators_->ConvolutionWorkspace(convolution)));
  Output<float> depthwise(9), dense(9);
  operators_->DepthwiseConvolution(convolution, lazy, weights.data(), depthwise.data(), {},
                                   workspace.view());
  operators_->Convolution(convolution, lazy, weights.data(), nullptr, dense.data(), {},
                          workspace.view());
  ExpectClose("depthwise", expected, depthwise.Take("depthwise"), 1e-6);
  ExpectClose("dense", expected, dense.Take("dense"), 1e-6);
}

TEST_P(OperatorsTest, StatisticsAreExactForAConstantAndPreciseForALargeMean) {
  const Shape shape{4, 9, 9, 8};
  const ConvolutionShape convolution = SameConvolution(shape, 8, 1, 1);
  std::vector<float> weights(64, 0.0f);
  for (int i = 0; i < 8; ++i) weights[i * 9] = 1;
  GuardedWorkspace workspace(operators_->ConvolutionWorkspace(convolution));
  Output<float> y(shape.size()), mean(8), variance(8);
  const std::vector<float> constant(shape.size(), 3.25f);
  operators_->Convolution(convolution, Plain(shape, constant), weights.data(), nullptr, y.data(),
                          {mean.data(), variance.data()}, workspace.view());
  EXPECT_EQ(mean.Take("mean"), std::vector<float>(8, 3.25f));
  EXPECT_EQ(variance.Take("variance"), std::vector<float>(8, 0.0f));

  // Values of +-1 around 4096: sums of squares in float would lose the variance completely.
  std::vector<float> far(shape.size());
  for (size_t i = 0; i < far.size(); ++i) far[i] = 4096.0f + (i / 8 % 2 == 0 ? 1.0f : -1.0f);
  operators_->Convolution(convolution, Plain(shape, far), weights.data(), nullptr, y.data(),
                          {mean.data(), variance.data()}, workspace.view());
  ExpectClose("variance", std::vector<float>(8, 1.0f), variance.Take("variance"), 1e-5);
}

TEST_P(OperatorsTest, DepthwiseStatisticsArePreciseForALargeMean) {
  const Shape shape{9, 8, 8, 10};
  std::vector<float> far(shape.size()), weights(10, 1.0f);
  for (size_t i = 0; i < far.size(); ++i) far[i] = 4096.0f + (i / 10 % 2 == 0 ? 1.0f : -1.0f);
  const ConvolutionShape convolution = SameConvolution(shape, 10, 1, 1);
  GuardedWorkspace workspace(operators_->DepthwiseWorkspace(convolution));
  Output<float> y(shape.size()), mean(10), variance(10);
  operators_->DepthwiseConvolution(convolution, Plain(shape, far), weights.data(), y.data(),
                                   {mean.data(), variance.data()}, workspace.view());
  ExpectClose("mean", std::vector<float>(10, 4096.0f), mean.Take("mean"), 1e-6);
  ExpectClose("variance", std::vector<float>(10, 1.0f), variance.Take("variance"), 1e-5);
}

TEST_P(OperatorsTest, PoolAveragesTheActivatedPixels) {
  const Shape shape{2, 2, 2, 3};
  std::vector<float> x(shape.size());
  std::iota(x.begin(), x.end(), -6.0f);  // -6 .. 17
  const Lazy<float> lazy{shape, x.data(), nullptr, FusedActivation::kRelu6, nullptr, nullptr};
  Output<float> y(6), dx(shape.size());
  operators_->GlobalAveragePool(lazy, y.data());
  // Channel 0 has -6, -3, 0 and 3 in sample 0, and 6 and more in sample 1.
  ExpectClose("pool", std::vector<float>{0.75f, 1.25f, 1.75f, 6, 6, 6}, y.Take("pool"), 1e-6);
  GuardedWorkspace workspace(operators_->PoolWorkspace(shape));
  const std::vector<float> dy{4, 8, 12, 4, 8, 12};
  operators_->GlobalAveragePoolBackward(lazy, dy.data(), {dx.data(), nullptr, nullptr, nullptr},
                                        workspace.view());
  std::vector<float> expected(shape.size(), 0.0f);
  for (int i = 0; i < 24; ++i)
    expected[i] = x[i] > 0 && x[i] < 6 ? 1.0f + static_cast<float>(i % 3) : 0.0f;
  EXPECT_EQ(dx.Take("pool gradient"), expected);
}

// The gradient of a sum goes back through each of its inputs as that of a pool of single pixels.
TEST_P(OperatorsTest, AGradientPassesThroughAPoolOfSinglePixels) {
  constexpr int64_t kPixels = 150, kChannels = 19;
  const Shape shape{kPixels, 1, 1, kChannels};
  const auto raw = RandomValues<float>(shape.size(), 1), dy = RandomValues<float>(shape.size(), 2),
             add = RandomValues<float>(shape.size(), 3);
  const std::vector<float> gamma(kChannels, 2.0f), beta(kChannels, 0.25f), mean(kChannels, 0.5f),
      variance(kChannels, 4.0f);
  const BatchNorm<float> norm{gamma.data(),    beta.data(), mean.data(),
                              variance.data(), 0,           Statistics::kBatch};
  const Lazy<float> x{shape, raw.data(), &norm, FusedActivation::kRelu6, nullptr, nullptr};
  Output<float> dz(shape.size()), dbeta(kChannels), dgamma(kChannels);
  GuardedWorkspace workspace(operators_->PoolWorkspace(shape));
  operators_->GlobalAveragePoolBackward(
      x, dy.data(), {dz.data(), add.data(), dbeta.data(), dgamma.data()}, workspace.view());
  std::vector<float> expected(shape.size()), expected_dbeta(kChannels), expected_dgamma(kChannels);
  for (int64_t i = 0; i < shape.size(); ++i) {
    const float normed = (raw[i] - 0.5f) / 2.0f, value = 2.0f * normed + 0.25f;
    expected[i] = value > 0 && value < 6 ? dy[i] + add[i] : 0;
    expected_dbeta[i % kChannels] += expected[i];
    expected_dgamma[i % kChannels] += expected[i] * normed;
  }
  ExpectClose("dz", expected, dz.Take("dz"), 1e-6);
  ExpectClose("dbeta", expected_dbeta, dbeta.Take("dbeta"), 1e-5);
  ExpectClose("dgamma", expected_dgamma, dgamma.Take("dgamma"), 1e-5);
}

TEST_P(OperatorsTest, ApplyAddsTheSkipAfterBatchNorm) {
  const Shape shape{3, 1, 3, 9};
  const auto raw = RandomValues<float>(shape.size(), 1),
             skip = RandomValues<float>(shape.size(), 2);
  const std::vector<float> gamma(9, 2.0f), beta(9, -1.0f), mean(9, 0.5f), variance(9, 0.25f);
  const BatchNorm<float> norm{gamma.data(),    beta.data(), mean.data(),
                              variance.data(), 0,           Statistics::kFrozen};
  const Lazy<float> lazy{shape, raw.data(), &norm, FusedActivation::kNone, skip.data(), nullptr};
  Output<float> out(shape.size());
  operators_->Apply(lazy, out.data());
  std::vector<float> expected(shape.size());
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = 4 * (raw[i] - 0.5f) - 1 + skip[i];
  ExpectClose("apply", expected, out.Take("apply"), 1e-6);
}

TEST_P(OperatorsTest, NanReachesTheOutput) {
  const Shape shape{1, 2, 2, 8};
  std::vector<float> raw(shape.size(), 1.0f);
  raw[3] = std::nanf("");
  const Lazy<float> lazy{shape, raw.data(), nullptr, FusedActivation::kRelu6, nullptr, nullptr};
  Output<float> out(shape.size());
  operators_->Apply(lazy, out.data());
  EXPECT_TRUE(std::isnan(out.Take("apply")[3]));
}

// The gradient of a pool of single pixels is dy times the slope of the activation. The batch norm
// leaves z as it is.
TEST_P(OperatorsTest, SlopesAreRightAtInfinitiesAndNans) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> raw{-kInfinity, -1, 0, 1, 6, 7, kInfinity, std::nanf("")};
  const std::vector<float> dy(8, 2.0f), one{1}, zero{0};
  const Shape shape{8, 1, 1, 1};
  const BatchNorm<float> norm{one.data(), zero.data(), zero.data(),
                              one.data(), 0,           Statistics::kFrozen};
  const std::vector<std::pair<FusedActivation, std::vector<float>>> cases = {
      {FusedActivation::kNone, {2, 2, 2, 2, 2, 2, 2, 2}},
      {FusedActivation::kRelu, {0, 0, 0, 2, 2, 2, 2, 2}},
      {FusedActivation::kRelu6, {0, 0, 0, 2, 0, 0, 0, 2}}};
  for (const auto& [activation, expected] : cases) {
    const float low = activation == FusedActivation::kNone ? -kInfinity : 0.0f;
    const float high = activation == FusedActivation::kRelu6 ? 6.0f : kInfinity;
    for (const BatchNorm<float>* batch_norm :
         {static_cast<const BatchNorm<float>*>(nullptr), &norm}) {
      SCOPED_TRACE(testing::Message()
                   << "activation " << static_cast<int>(activation)
                   << (batch_norm != nullptr ? " with" : " without") << " batch norm");
      const Lazy<float> x{shape, raw.data(), batch_norm, activation, nullptr, nullptr};
      Output<float> dz(8), value(8), dbeta(1), dgamma(1);
      GuardedWorkspace workspace(operators_->PoolWorkspace(shape));
      operators_->GlobalAveragePoolBackward(
          x, dy.data(), {dz.data(), nullptr, dbeta.data(), dgamma.data()}, workspace.view());
      EXPECT_EQ(dz.Take("dz"), expected);
      operators_->Apply(x, value.data());
      const std::vector<float> values = value.Take("value");
      for (int i = 0; i < 7; ++i) EXPECT_EQ(values[i], std::clamp(raw[i], low, high)) << raw[i];
      EXPECT_TRUE(std::isnan(values[7]));
    }
  }
}

TEST_P(OperatorsTest, DropoutKeepsAFractionAndDependsOnlyOnSeedAndIndex) {
  const int64_t size = 20000;
  const uint64_t seed = 11, other_seed = 12, salted_seed = 11 ^ 0x55;
  const std::vector<float> ones(size, 1.0f);
  std::vector<float> y(size), again(size), other(size), salted(size), shorter(100);
  operators_->Dropout(size, ones.data(), 0.25, &seed, 0, y.data());
  operators_->Dropout(size, ones.data(), 0.25, &seed, 0, again.data());
  operators_->Dropout(size, ones.data(), 0.25, &other_seed, 0, other.data());
  operators_->Dropout(100, ones.data(), 0.25, &seed, 0, shorter.data());
  EXPECT_EQ(y, again);
  EXPECT_NE(y, other);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), y.begin()));
  EXPECT_NEAR(std::accumulate(y.begin(), y.end(), 0.0) / size, 1.0, 0.02);
  for (const float value : y) EXPECT_TRUE(value == 0.0f || value == 1.0f / 0.75f) << value;
  operators_->Dropout(size, ones.data(), 0.25, &salted_seed, 0x55, salted.data());
  EXPECT_EQ(y, salted);
  operators_->Dropout(size, ones.data(), 0.25, &seed, 0x55, salted.data());
  EXPECT_NE(y, salted);
  operators_->Dropout(size, ones.data(), 0, &seed, 0, y.data());
  EXPECT_EQ(y, ones);
}

TEST_P(OperatorsTest, SoftmaxHandlesUniformLogits) {
  const std::vector<float> logits(2 * 10, 3.0f);
  const std::vector<int32_t> labels{0, 9};
  std::vector<float> dlogits(20);
  ClassificationResult result{-1, -1, -1};
  operators_->SoftmaxCrossEntropy(2, 10, logits.data(), labels.data(), 0.1, dlogits.data(),
                                  &result);
  EXPECT_NEAR(result.loss, std::log(10.0), 1e-6);
  EXPECT_EQ(result.top1, 0);  // a tie counts against the label
  EXPECT_EQ(result.top5, 0);
  EXPECT_NEAR(dlogits[0], (0.1 - 0.91) / 2, 1e-6);
  EXPECT_NEAR(dlogits[1], (0.1 - 0.01) / 2, 1e-6);
}

TEST_P(OperatorsTest, SoftmaxCountsRanksAndHandlesLargeLogits) {
  const std::vector<float> logits{1000, 0, -1000, 1, 2, 3, 1000, 0, -1000, 1, 2, 3};
  const std::vector<int32_t> labels{0, 2};
  ClassificationResult result;
  operators_->SoftmaxCrossEntropy(2, 6, logits.data(), labels.data(), 0, nullptr, &result);
  EXPECT_NEAR(result.loss, 1000, 1e-3);  // 0 for the first sample, 2000 for the second
  EXPECT_EQ(result.top1, 1);
  EXPECT_EQ(result.top5, 1);
}

// A logit of minus infinity excludes its class: it has no part in the loss, unless it is the
// target.
TEST_P(OperatorsTest, SoftmaxHandlesLogitsOfMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits{1, 1, -kInfinity};
  const std::vector<int32_t> first{0}, last{2};
  ClassificationResult result;
  Output<float> dlogits(3);
  operators_->SoftmaxCrossEntropy(1, 3, logits.data(), first.data(), 0, dlogits.data(), &result);
  EXPECT_NEAR(result.loss, std::log(2.0), 1e-6);
  ExpectClose("dlogits", std::vector<float>{-0.5f, 0.5f, 0.0f}, dlogits.Take("dlogits"), 1e-6);
  operators_->SoftmaxCrossEntropy(1, 3, logits.data(), last.data(), 0, nullptr, &result);
  EXPECT_EQ(result.loss, kInfinity);
  operators_->SoftmaxCrossEntropy(1, 3, logits.data(), first.data(), 0.1, nullptr, &result);
  EXPECT_EQ(result.loss, kInfinity);
}

// The losses of the samples are added in their order, whatever the order of the loop.
TEST(SoftmaxCrossEntropy, DoesNotDependOnTheLoop) {
  constexpr int64_t kSamples = 7, kClasses = 5;
  CounterRandom random(1, 1);
  std::vector<float> logits(kSamples * kClasses);
  for (float& logit : logits) logit = static_cast<float>(10 * random.NextNormal());
  const std::vector<int32_t> labels{0, 1, 2, 3, 4, 0, 1};
  const auto run = [&](ParallelLoop loop) {
    std::vector<float> dlogits(logits.size());
    const ClassificationResult result = SoftmaxCrossEntropyOnCpu(
        kSamples, kClasses, logits.data(), labels.data(), 0.1, dlogits.data(), loop);
    return std::make_tuple(result.loss, result.top1, result.top5, dlogits);
  };
  EXPECT_EQ(run(SerialLoop), run([](int64_t count, absl::FunctionRef<void(int64_t)> body) {
              for (int64_t i = count - 1; i >= 0; --i) body(i);
            }));
}

TEST_P(OperatorsTest, RefusesALabelThatIsNotAClass) {
  const std::vector<float> logits(4);
  const std::vector<int32_t> labels{4};
  ClassificationResult result;
  EXPECT_DEATH(
      operators_->SoftmaxCrossEntropy(1, 4, logits.data(), labels.data(), 0, nullptr, &result),
      "sample 0: label 4 of 4");
}

TEST_P(OperatorsTest, PushedStatisticsAreUnbiased) {
  const std::vector<float> mean{1.5f, -2, 0}, variance{0.5f, 4, 0};
  Output<float> pushed_mean(3), pushed_variance(3);
  Output<float> second_mean(2), second_variance(2);
  // The second batch norm has a single row, so there is nothing to divide by.
  operators_->MovingStatistics(
      {{3, 5, mean.data(), variance.data(), pushed_mean.data(), pushed_variance.data()},
       {2, 1, mean.data() + 1, variance.data() + 1, second_mean.data(), second_variance.data()}});
  EXPECT_EQ(pushed_mean.Take("mean"), mean);
  EXPECT_EQ(pushed_variance.Take("variance"), (std::vector<float>{0.625f, 5, 0}));
  EXPECT_EQ(second_mean.Take("mean of one row"), (std::vector<float>{-2, 0}));
  EXPECT_EQ(second_variance.Take("variance of one row"), (std::vector<float>{4, 0}));
}

TEST_P(OperatorsTest, CorrectedStatisticsDoNotContainTheInitialValues) {
  // A quarter of the initial mean 0 and variance 1 is left; the gathered statistics had mean 2 and
  // variance 3.
  const std::vector<float> mean{1.5f, 1.5f}, variance{2.5f, 0.125f};
  Output<float> corrected_mean(2), corrected_variance(2);
  operators_->CorrectStatistics(2, 0.25, mean.data(), variance.data(), corrected_mean.data(),
                                corrected_variance.data());
  EXPECT_EQ(corrected_mean.Take("mean"), (std::vector<float>{2, 2}));
  EXPECT_EQ(corrected_variance.Take("variance"), (std::vector<float>{3, 0}));  // never below 0
}

TEST_P(OperatorsTest, ZeroAndConversionsWriteTheRightValues) {
  const std::vector<float> values{1, -2.5f, 3};
  Output<float> to(3), from(3), zeros(3);
  operators_->ConvertFromFloat(3, values.data(), to.data());
  operators_->ConvertToFloat(3, values.data(), from.data());
  operators_->Zero(3, zeros.data());
  EXPECT_EQ(to.Take("from float"), values);
  EXPECT_EQ(from.Take("to float"), values);
  EXPECT_EQ(zeros.Take("zero"), std::vector<float>(3, 0.0f));
}

TEST_P(OperatorsTest, ReadsImagesAsTheyWereEdited) {
  for (const ImageInput& input : {ImageInput{1, 1, 3, {}}, ImageInput{9, 13, 3, {4, 120, 255}},
                                  ImageInput{21, 6, 1, {77, 0, 0}}}) {
    const int64_t samples = 12;
    const std::vector<char> block = RandomImages(input, samples, 3);
    Output<float> images(samples * input.num_elements());
    operators_->SampleImages(input, samples, block.data(), images.data());
    ExpectClose("images", ReadImagesInDouble(input, samples, block), images.Take("images"), 2e-5,
                1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperatorsTest, testing::Values("reference", "fast"),
                         [](const auto& info) { return info.param; });

// The numbers have any bits, denormal ones among them, and end inside a task and inside a vector.
TEST(FastOperators, ConvertEachFloatToTheNearestBfloat16) {
  ThreadPool pool(2);
  const auto operators = MakeFastOperators<Bfloat16>(&pool);
  CounterRandom random(11, 1);
  std::vector<float> from(100'003);
  for (size_t i = 0; i < from.size(); ++i) {
    uint32_t bits = static_cast<uint32_t>(random.NextUint32());
    if (i % 4 == 0) bits &= 0x807fffff;  // denormal
    std::memcpy(&from[i], &bits, sizeof(bits));
  }
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    std::vector<Bfloat16> to(from.size());
    operators->ConvertFromFloat(static_cast<int64_t>(from.size()), from.data(), to.data());
    UseCpuIsa(AvailableCpuIsas().back());
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(to[i].bits, ToBfloat16(from[i]).bits) << from[i] << " with " << CpuIsaName(isa);
    }
  }
}

float WithoutDenormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// The sum of two bfloat16 numbers may have any bits; what is stored is ToBfloat16 of it. Denormal
// numbers are zeros. The channels end inside a vector.
TEST(FastOperators, StoreTheNearestBfloat16) {
  ThreadPool pool(1);
  const auto operators = MakeFastOperators<Bfloat16>(&pool);
  const Shape shape{1, 40, 50, 13};
  CounterRandom random(9, 1);
  std::vector<Bfloat16> raw(shape.size()), skip(shape.size());
  for (Bfloat16& number : raw) number.bits = static_cast<uint16_t>(random.NextUint32());
  for (size_t i = 0; i < skip.size(); ++i) {
    skip[i].bits = static_cast<uint16_t>(random.NextUint32());
    // Most pairs have close exponents, so that the sum needs more bits than there are, or ties.
    if (i % 8 != 0) skip[i].bits = static_cast<uint16_t>(raw[i].bits - (skip[i].bits & 0x3ff));
  }
  Lazy<Bfloat16> lazy{shape, raw.data(), nullptr, FusedActivation::kNone, skip.data(), nullptr};
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    std::vector<Bfloat16> stored(shape.size());
    operators->Apply(lazy, stored.data());
    for (size_t i = 0; i < stored.size(); ++i) {
      const float sum =
          WithoutDenormal(WithoutDenormal(ToFloat(raw[i])) + WithoutDenormal(ToFloat(skip[i])));
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(ToFloat(stored[i]))) << i;
      } else {
        ASSERT_EQ(stored[i].bits, ToBfloat16(sum).bits)
            << ToFloat(raw[i]) << " + " << ToFloat(skip[i]) << " with " << CpuIsaName(isa);
      }
    }
  }
  UseCpuIsa(AvailableCpuIsas().back());
}

// The gradient of the bias of a 1x1 convolution: the sum of all rows of dy, [rows, channels].
template <typename T>
std::vector<float> BiasGradient(const std::vector<T>& dy, int64_t channels, int threads) {
  ThreadPool pool(threads);
  const auto operators = MakeFastOperators<T>(&pool);
  const Shape in{static_cast<int64_t>(dy.size()) / channels, 1, 1, 1};
  const ConvolutionShape shape{in, channels, 1, 1, {}};
  const std::vector<T> x(in.size());
  const std::vector<float> weights(channels);
  Output<float> dweights(channels), dbias(channels);
  GuardedWorkspace workspace(operators->ConvolutionWorkspace(shape));
  operators->ConvolutionBackward(shape,
                                 {in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr},
                                 weights.data(), {dy.data(), nullptr, nullptr, nullptr, nullptr},
                                 dweights.data(), dbias.data(), {}, workspace.view());
  return dbias.Take("dbias");
}

// A chain of additions in float would be off by several thousandths.
TEST(FastOperators, BiasGradientsArePreciseForManyRows) {
  constexpr int64_t kRows = 1 << 19;
  constexpr double kNumber = 0.1f;
  for (const int64_t channels : {1, 11}) {
    const std::vector<float> expected(channels, static_cast<float>(kRows * kNumber));
    ExpectClose("dbias", expected,
                BiasGradient(std::vector<float>(kRows * channels, 0.1f), channels, 2), 1e-6);
    const Bfloat16 number = ToBfloat16(0.1f);
    ExpectClose("dbias in bfloat16", std::vector<float>(channels, kRows * ToFloat(number)),
                BiasGradient(std::vector<Bfloat16>(kRows * channels, number), channels, 2), 1e-6);
  }
}

// The rows end inside of a block and of a group of rows.
TEST(FastOperators, BiasGradientsDoNotDependOnTheNumberOfThreads) {
  for (const auto& [rows, channels] : {std::pair<int64_t, int64_t>{70003, 21}, {5, 300}, {0, 3}}) {
    const std::vector<float> dy = RandomValues<float>(rows * channels, 1);
    std::vector<Bfloat16> halves;
    for (const float number : dy) halves.push_back(ToBfloat16(number));
    std::vector<double> exact(channels);
    for (size_t i = 0; i < dy.size(); ++i) exact[i % channels] += dy[i];
    const std::vector<float> one = BiasGradient(dy, channels, 1);
    ExpectClose("dbias", std::vector<float>(exact.begin(), exact.end()), one, 1e-5);
    EXPECT_EQ(one, BiasGradient(dy, channels, 3)) << rows;
    EXPECT_EQ(BiasGradient(halves, channels, 1), BiasGradient(halves, channels, 3)) << rows;
  }
}

TEST(FastOperators, RefusesAWindowBelowTheInput) {
  ThreadPool pool(1);
  const auto operators = MakeFastOperators(&pool);
  const ConvolutionShape shape{{1, 4, 4, 8}, 8, 1, 1, {0, 3, 0, 0}};
  const std::vector<float> x(shape.in.size()), weights(8);
  std::vector<float> y(shape.out().size());
  const Lazy<float> lazy{shape.in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  EXPECT_DEATH(operators->ConvolutionWorkspace(shape), "a padding of 3 pixels");
  EXPECT_DEATH(operators->DepthwiseConvolution(shape, lazy, weights.data(), y.data(), {}, {}),
               "a padding of 3 pixels");
}

TEST(FastOperators, RefusesAWorkspaceThatIsTooSmall) {
  ThreadPool pool(1);
  const auto operators = MakeFastOperators(&pool);
  const ConvolutionShape shape = SameConvolution({1, 4, 4, 8}, 8, 1, 1);
  const std::vector<float> x(128), weights(64);
  std::vector<float> y(128);
  GuardedWorkspace workspace(operators->ConvolutionWorkspace(shape) / 4);
  const Lazy<float> lazy{shape.in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  EXPECT_DEATH(
      operators->Convolution(shape, lazy, weights.data(), nullptr, y.data(), {}, workspace.view()),
      "workspace too small");
}

}  // namespace
}  // namespace pushpull
