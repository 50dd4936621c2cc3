// Compares softmax cross-entropy on the GPU with the CPU's in double, on the same rounded logits.
#include <cmath>
#include <limits>

#include "kernels/cuda/losses.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
class SoftmaxTest : public DeviceFixture<testing::Test> {};
using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(SoftmaxTest, Types);

template <typename T>
struct Outcome {
  ClassificationResult result;
  std::vector<T> dlogits;
};

template <typename T>
Outcome<T> RunOnDevice(int64_t classes, const std::vector<T>& logits,
                       const std::vector<int32_t>& labels, double smoothing) {
  const auto samples = static_cast<int64_t>(labels.size());
  DefaultQueue queue;
  DeviceArray<T> device_logits(logits);
  DeviceArray<int32_t> device_labels(labels);
  Outcome<T> outcome;
  outcome.dlogits = InAllOrders([&] {
    DeviceArray<T> dlogits(samples * classes);
    DeviceArray<ClassificationResult> result(1), alone(1);
    SoftmaxCrossEntropy(&queue, samples, classes, device_logits.data(), device_labels.data(),
                        smoothing, dlogits.data(), result.data());
    SoftmaxCrossEntropy<T>(&queue, samples, classes, device_logits.data(), device_labels.data(),
                           smoothing, nullptr, alone.data());
    EXPECT_TRUE(SameBits(result.Take(), alone.Take())) << "the results without a gradient differ";
    outcome.result = result.Take()[0];
    return dlogits.Take();
  });
  return outcome;
}

template <typename T>
void CheckAgainstCpu(int64_t classes, const std::vector<double>& values,
                     const std::vector<int32_t>& labels, double smoothing) {
  const std::vector<T> logits = Nearest<T>(values);
  const Outcome<T> got = RunOnDevice(classes, logits, labels, smoothing);
  const std::vector<double> exact = ToDoubles(logits);
  std::vector<double> dlogits(exact.size());
  const ClassificationResult want =
      SoftmaxCrossEntropyOnCpu<double>(static_cast<int64_t>(labels.size()), classes, exact.data(),
                                       labels.data(), smoothing, dlogits.data(), SerialLoop);
  EXPECT_NEAR(got.result.loss, want.loss, 1e-6 * std::max(1.0, std::abs(want.loss)));
  EXPECT_EQ(got.result.top1, want.top1);
  EXPECT_EQ(got.result.top5, want.top5);
  ExpectClose("dlogits", dlogits, ToDoubles(got.dlogits), ToleranceOf<T>());
}

TYPED_TEST(SoftmaxTest, MatchesTheCpu) {
  const int64_t sizes[][2] = {{1, 1},     {3, 2},     {37, 10}, {70, 33},
                              {32, 1000}, {33, 1001}, {2100, 3}};
  for (const auto& [samples, classes] : sizes) {
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(testing::Message() << samples << " x " << classes << ", " << smoothing);
      CounterRandom random(3, static_cast<uint64_t>(samples));
      std::vector<double> logits(samples * classes);
      for (double& logit : logits) logit = 3.0 * random.NextNormal();
      std::vector<int32_t> labels(samples);
      for (int32_t& label : labels) label = static_cast<int32_t>(random.NextBelow(classes));
      // Makes every third prediction right.
      for (int64_t s = 0; s < samples; s += 3) logits[s * classes + labels[s]] += 9.0;
      CheckAgainstCpu<TypeParam>(classes, logits, labels, smoothing);
    }
  }
}

TYPED_TEST(SoftmaxTest, TiesCountAgainstTheLabel) {
  // All equal, then five equal, then the label alone at the top.
  const std::vector<double> logits = {1, 1, 1, 1, 1, 1, 1,  //
                                      2, 2, 2, 2, 2, 1, 0,  //
                                      2, 2, 2, 2, 2, 2, 9};
  const std::vector<int32_t> labels = {0, 4, 6};
  CheckAgainstCpu<TypeParam>(7, logits, labels, 0.0);
  const auto got = RunOnDevice(7, Nearest<TypeParam>(logits), labels, 0.0);
  EXPECT_EQ(got.result.top1, 1);
  EXPECT_EQ(got.result.top5, 2);
}

TYPED_TEST(SoftmaxTest, LargeLogitsDoNotOverflow) {
  CheckAgainstCpu<TypeParam>(3, {1e4, -1e4, 0, 3e38, 1, 2, -3e38, -3e38, -3e38}, {1, 0, 2}, 0.0);
}

// Small gradients keep their precision, which matters in the last steps of a training.
TYPED_TEST(SoftmaxTest, KeepsThePrecisionOfSmallGradients) {
  CheckAgainstCpu<TypeParam>(4, {12, 0, -1, 0.5, 11, 12, 25, 13}, {0, 2}, 0.0);
}

TYPED_TEST(SoftmaxTest, NanShowsInTheLoss) {
  for (const size_t place : {0, 5, 39}) {
    std::vector<double> logits(80, 0.25);
    logits[40 + place] = kNan;
    const auto got = RunOnDevice(40, Nearest<TypeParam>(logits), {1, 5}, 0.1);
    EXPECT_TRUE(std::isnan(got.result.loss)) << place;
    EXPECT_TRUE(std::isnan(ToFloat(got.dlogits[79]))) << place;
    EXPECT_FALSE(std::isnan(ToFloat(got.dlogits[0]))) << place;
  }
  const auto all = RunOnDevice(2, Nearest<TypeParam>({kNan, kNan}), {0}, 0.0);
  EXPECT_TRUE(std::isnan(all.result.loss));
}

TYPED_TEST(SoftmaxTest, ALogitOfMinusInfinityHasNoPartInTheLoss) {
  const double none = -std::numeric_limits<double>::infinity();
  CheckAgainstCpu<TypeParam>(3, {1, none, 2, none, 0, 0.5}, {0, 2}, 0.0);
  const auto got = RunOnDevice(2, Nearest<TypeParam>({1, none}), {0}, 0.0);
  EXPECT_EQ(got.result.loss, 0.0);
}

TYPED_TEST(SoftmaxTest, AnInvalidLabelShowsInTheLoss) {
  for (const int32_t label : {-1, 3}) {
    const auto got = RunOnDevice(3, Nearest<TypeParam>({1, 2, 3}), {label}, 0.0);
    EXPECT_TRUE(std::isnan(got.result.loss)) << label;
    EXPECT_EQ(got.result.top1, 0) << label;
  }
}

TYPED_TEST(SoftmaxTest, HandlesNoSamples) {
  const auto got = RunOnDevice(5, std::vector<TypeParam>(), {}, 0.0);
  EXPECT_EQ(got.result.loss, 0.0);
  EXPECT_EQ(got.result.top5, 0);
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
