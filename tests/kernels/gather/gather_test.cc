// The formulas of the gathers against loops that go the other way round, and against hand-computed
// values. Gradients of whole networks are in tests/worker/model/random_graph_test.cc.
#include "kernels/gather/gather.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/gather/host_gather.h"
#include "tests/testkit/kernels/gather_cases.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();

template <typename T>
void RunSerially(const Gather<T>& gather) {
  RunOnHost<T>(gather, SerialLoop);
}

std::vector<double> RandomValues(int64_t count, uint64_t seed) {
  CounterRandom random(seed, 1);
  std::vector<double> values(count);
  for (double& value : values) value = 8.0 * random.NextFloat() - 4.0;
  return values;
}

double Value(ActivationFunction function, double x) {
  return gather::ActivationValue(op::Activation{function, 0.25f}, x);
}

double TextbookValue(ActivationFunction function, double x) {
  const double relu = std::max(x, 0.0);
  const double hard_sigmoid = std::min(std::max(x + 3.0, 0.0), 6.0) / 6.0;
  const double sigmoid = 1 / (1 + std::exp(-x));
  switch (function) {
    case ActivationFunction::kNone:
      return x;
    case ActivationFunction::kRelu:
      return relu;
    case ActivationFunction::kRelu6:
      return std::min(relu, 6.0);
    case ActivationFunction::kLeakyRelu:
      return x < 0 ? 0.25 * x : x;
    case ActivationFunction::kHardSigmoid:
      return hard_sigmoid;
    case ActivationFunction::kHardSwish:
      return x * hard_sigmoid;
    case ActivationFunction::kSigmoid:
      return sigmoid;
    case ActivationFunction::kSwish:
      return x * sigmoid;
  }
  return std::nan("");
}

TEST(GatherTest, ActivationsHaveTheirTextbookValues) {
  ASSERT_GE(AllActivationFunctions().size(), 8u);
  for (const ActivationFunction function : AllActivationFunctions()) {
    for (const double x : {-7.0, -3.0, -1.5, 0.0, 0.25, 2.0, 3.0, 5.0, 8.0}) {
      EXPECT_DOUBLE_EQ(Value(function, x), TextbookValue(function, x))
          << ActivationName(function) << " at " << x;
    }
  }
}

TEST(GatherTest, ActivationsAreDifferentiable) {
  for (const ActivationFunction function : AllActivationFunctions()) {
    const op::Activation activation{function, 0.25f};
    for (const double x : {-9.0, -3.1, -2.9, -1.0, -0.1, 0.1, 1.0, 2.9, 3.1, 5.9, 6.1, 9.0}) {
      const double difference = (gather::ActivationValue(activation, x + 1e-6) -
                                 gather::ActivationValue(activation, x - 1e-6)) /
                                2e-6;
      EXPECT_NEAR(gather::ActivationDerivative(activation, x), difference, 1e-8)
          << ActivationName(function) << " at " << x;
    }
  }
}

TEST(GatherTest, ActivationsKeepNanAndDoNotOverflow) {
  for (const ActivationFunction function : AllActivationFunctions()) {
    EXPECT_TRUE(std::isnan(Value(function, std::nan("")))) << ActivationName(function);
    EXPECT_TRUE(std::isfinite(Value(function, -1000.0))) << ActivationName(function);
    EXPECT_TRUE(std::isfinite(Value(function, 1000.0))) << ActivationName(function);
    const op::Activation activation{function, 0.25f};
    for (const float x : {-200.0f, 200.0f}) {
      EXPECT_TRUE(std::isfinite(gather::ActivationDerivative(activation, x)));
    }
  }
}

// Pools by visiting every window and every element in it.
template <typename Visit>
void ForEachCell(const gather::PoolWindows& s, int64_t channels, Visit visit) {
  for (int64_t n = 0; n < s.in.n; ++n) {
    for (int64_t oh = 0; oh < s.out_h; ++oh) {
      for (int64_t ow = 0; ow < s.out_w; ++ow) {
        for (int64_t c = 0; c < channels; ++c) {
          std::vector<int64_t> cells;
          for (int kh = 0; kh < s.kernel; ++kh) {
            for (int kw = 0; kw < s.kernel; ++kw) {
              const int64_t h = oh * s.stride + kh - s.padding.top;
              const int64_t w = ow * s.stride + kw - s.padding.left;
              if (h < 0 || h >= s.in.h || w < 0 || w >= s.in.w) continue;
              cells.push_back(((n * s.in.h + h) * s.in.w + w) * channels + c);
            }
          }
          visit(((n * s.out_h + oh) * s.out_w + ow) * channels + c, cells);
        }
      }
    }
  }
}

TEST(GatherTest, PoolsAreThoseOfTheirWindows) {
  const Shape in{2, 7, 6, 3};
  for (const gather::PoolWindows& windows :
       {gather::PoolWindows(in, 3, 2, {0, 1, 1, 1}), gather::PoolWindows(in, 2, 2, {}),
        gather::PoolWindows(in, 3, 1, {1, 1, 1, 1}), gather::PoolWindows(in, 1, 3, {}),
        gather::PoolWindows(in, 5, 2, {2, 2, 4, 4})}) {
    SCOPED_TRACE(testing::Message() << windows.kernel << "/" << windows.stride);
    const int64_t rows = in.n * windows.out_h * windows.out_w, size = rows * in.c;
    std::vector<double> x = RandomValues(in.size(), 1);
    for (double& value : x) value = std::round(value);  // so that windows have equal elements
    const std::vector<double> dy = RandomValues(size, 2);
    std::vector<double> most(size), mean(size), dmost(in.size()), dmean(in.size());
    ForEachCell(windows, in.c, [&](int64_t out, const std::vector<int64_t>& cells) {
      int64_t best = cells[0];
      for (const int64_t cell : cells) {
        if (x[cell] > x[best]) best = cell;
        mean[out] += x[cell] / static_cast<double>(cells.size());
        dmean[cell] += dy[out] / static_cast<double>(cells.size());
      }
      most[out] = x[best];
      dmost[best] += dy[out];
    });
    std::vector<double> y(size), dx(in.size());
    RunSerially<double>(gather::MaxPoolForward<double>{rows, in.c, windows, x.data(), y.data()});
    EXPECT_EQ(y, most);
    RunSerially<double>(
        gather::MaxPoolBackward<double>{in.rows(), in.c, windows, x.data(), dy.data(), dx.data()});
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], dmost[i], 1e-12) << i;
    RunSerially<double>(
        gather::AveragePoolForward<double>{rows, in.c, windows, x.data(), y.data()});
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], mean[i], 1e-12) << i;
    RunSerially<double>(
        gather::AveragePoolBackward<double>{in.rows(), in.c, windows, dy.data(), dx.data()});
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], dmean[i], 1e-12) << i;
  }
}

TEST(GatherTest, AMaxPoolKeepsNanAndInfinity) {
  const std::vector<double> x = {-kDoubleInfinity, -kDoubleInfinity, 1.0, std::nan(""), 2.0,
                                 kDoubleInfinity};
  const gather::PoolWindows windows({1, 1, 6, 1}, 1, 1, {});
  const gather::PoolWindows pairs({3, 1, 2, 1}, 2, 2, {0, 1, 0, 0});
  std::vector<double> y(3);
  RunSerially<double>(gather::MaxPoolForward<double>{3, 1, pairs, x.data(), y.data()});
  EXPECT_EQ(y[0], -kDoubleInfinity);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], kDoubleInfinity);
}

TEST(GatherTest, MultipliesEveryPixelOfASampleByItsGate) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 8};  // two samples, two pixels, two channels
  const std::vector<double> gate = {10, 100, 1000, 10000};
  std::vector<double> y(8), dgate(4);
  RunSerially<double>(gather::MultiplyForward<double>{4, 2, 2, x.data(), gate.data(), y.data()});
  EXPECT_THAT(y, ElementsAre(10, 200, 30, 400, 5000, 60000, 7000, 80000));
  const std::vector<double> dy = {1, 1, 2, 0, 1, 2, 0, 1};
  RunSerially<double>(
      gather::MultiplyBackwardGate<double>{2, 2, 2, x.data(), dy.data(), dgate.data()});
  EXPECT_THAT(dgate, ElementsAre(1 * 1 + 3 * 2, 2 * 1 + 4 * 0, 5 * 1 + 7 * 0, 6 * 2 + 8 * 1));
}

TEST(GatherTest, UpsamplingRepeatsPixelsAndItsGradientAddsThem) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};  // one row of three pixels, two channels
  const Shape in{1, 1, 3, 2};
  std::vector<double> y(24), dx(6);
  RunSerially<double>(gather::UpsampleForward<double>{12, 2, in, 2, x.data(), y.data()});
  EXPECT_THAT(y, ElementsAre(1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6,  //
                             1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6));
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(i);
  RunSerially<double>(gather::UpsampleBackward<double>{3, 2, in, 2, y.data(), dx.data()});
  EXPECT_THAT(dx, ElementsAre(0 + 2 + 12 + 14, 1 + 3 + 13 + 15, 4 + 6 + 16 + 18, 5 + 7 + 17 + 19,
                              8 + 10 + 20 + 22, 9 + 11 + 21 + 23));
}

TEST(GatherTest, RepeatsChannelsAndItsGradientAddsThem) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};  // two rows of three channels
  std::vector<double> y(12), dx(6);
  RunSerially<double>(gather::RepeatChannelsForward<double>{2, 6, 2, x.data(), y.data()});
  EXPECT_THAT(y, ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6));
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(i);
  RunSerially<double>(gather::RepeatChannelsBackward<double>{2, 3, 2, y.data(), dx.data()});
  EXPECT_THAT(dx, ElementsAre(0 + 1, 2 + 3, 4 + 5, 6 + 7, 8 + 9, 10 + 11));
}

TEST(GatherTest, CopiesOnlyItsChannels) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> y(8, 0.5f);
  RunSerially<float>(gather::CopyChannels<float>{2, 2, x.data(), 3, 1, y.data(), 4, 1});
  EXPECT_THAT(y, ElementsAre(0.5f, 2, 3, 0.5f, 0.5f, 5, 6, 0.5f));
}

// Coarse values, so that windows have equal elements, with infinities and NaNs among them.
template <typename T>
std::vector<T> AwkwardNumbers(int64_t count, uint64_t seed) {
  std::vector<T> numbers(count);
  const std::vector<double> values = RandomValues(count, seed);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_special = i % 11 == 5;
    const double value = !is_special     ? std::round(2.0 * values[i]) / 2.0
                         : values[i] > 2 ? std::nan("")
                                         : std::copysign(kDoubleInfinity, values[i]);
    gather::Narrow(static_cast<gather::WideOf<T>>(value), &numbers[i]);
  }
  return numbers;
}

// Bits would not do: which of two NaNs a product returns is up to the compiler.
template <typename T>
void ExpectSameNumbers(const std::vector<T>& expected, const std::vector<T>& actual,
                       const std::string& name) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto want = gather::Widen(expected[i]), got = gather::Widen(actual[i]);
    const bool same =
        std::isnan(want) ? std::isnan(got) : want == got && std::signbit(want) == std::signbit(got);
    EXPECT_TRUE(same) << name << " " << i << ": " << want << " and " << got;
  }
}

// Some gathers run on the CPU in an order of their own.
template <typename T>
void ExpectTheNumbersOfTheFormulas() {
  for (const GatherCase<T>& c : AllGatherCases<T>()) {
    const std::vector<T> a = AwkwardNumbers<T>(c.a, 1), b = AwkwardNumbers<T>(c.b, 2);
    std::vector<T> expected(c.out), actual(c.out);
    std::visit(
        [](const auto& formula) {
          for (int64_t row = 0; row < formula.rows; ++row) {
            for (int64_t channel = 0; channel < formula.channels; ++channel) formula(row, channel);
          }
        },
        c.make({a.data(), b.data(), expected.data()}));
    RunSerially<T>(c.make({a.data(), b.data(), actual.data()}));
    ExpectSameNumbers(expected, actual, c.name);
  }
}

TEST(GatherTest, TheCpuComputesTheNumbersOfTheFormulas) {
  ExpectTheNumbersOfTheFormulas<float>();
  ExpectTheNumbersOfTheFormulas<Bfloat16>();
  ExpectTheNumbersOfTheFormulas<double>();
}

TEST(GatherTest, AnActivationsGradientMayReplaceThatOfItsOutput) {
  constexpr int64_t kRows = 3, kChannels = 150;
  const std::vector<float> x = AwkwardNumbers<float>(kRows * kChannels, 1);
  for (const ActivationFunction function : AllActivationFunctions()) {
    const std::vector<float> dy = AwkwardNumbers<float>(kRows * kChannels, 2);
    std::vector<float> dx = dy;
    RunSerially<float>(gather::ActivationBackward<float>{
        kRows, kChannels, {function, 0}, x.data(), dx.data(), dx.data()});
    std::vector<float> expected(dy.size());
    for (size_t i = 0; i < dy.size(); ++i) {
      expected[i] = dy[i] * gather::ActivationDerivative<float>({function, 0}, x[i]);
    }
    ExpectSameNumbers(expected, dx, ActivationName(function));
  }
}

// Every gather writes each element of its output once, whatever order its tasks run in.
TEST(GatherTest, ResultsDoNotDependOnTheOrderOfTasks) {
  for (const GatherCase<double>& c : AllGatherCases<double>()) {
    const std::vector<double> a = RandomValues(c.a, 1), b = RandomValues(c.b, 2);
    std::vector<double> forward(c.out, -1.0), backward(c.out, -1.0);
    RunSerially<double>(c.make({a.data(), b.data(), forward.data()}));
    RunOnHost<double>(c.make({a.data(), b.data(), backward.data()}),
                      [](int64_t count, absl::FunctionRef<void(int64_t)> body) {
                        for (int64_t i = count - 1; i >= 0; --i) body(i);
                      });
    EXPECT_EQ(forward, backward) << c.name;
  }
}

}  // namespace
}  // namespace pushpull
