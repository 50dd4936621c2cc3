// Compares a whole network's reference gradients in double with central differences, and the fast
// path with the reference.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "tests/kernels/cpu/tiny_network.h"
#include "tests/testkit/kernels/compare.h"

namespace pushpull {
namespace {

struct NamedSpec {
  std::string name;
  TinySpec spec;
};

void PrintTo(const NamedSpec& spec, std::ostream* out) { *out << spec.name; }

std::vector<NamedSpec> Specs() {
  std::vector<NamedSpec> specs;
  const auto add = [&](const std::string& name, auto change) {
    specs.push_back({name, {}});
    change(specs.back().spec);
  };
  add("skip", [](TinySpec&) {});
  add("frozen", [](TinySpec& s) { s.statistics = Statistics::kFrozen; });
  add("relu", [](TinySpec& s) { s.activation = FusedActivation::kRelu; });
  add("linear", [](TinySpec& s) { s.activation = FusedActivation::kNone; });
  add("stride2", [](TinySpec& s) {
    s.skip = false;
    s.block_stride = 2;
  });
  add("stride2_even", [](TinySpec& s) {
    s.image = {2, 9, 9, 3};
    s.skip = false;
    s.block_stride = 2;
    s.stem_padding = {1, 0, 0, 1};
  });
  add("one_pixel", [](TinySpec& s) {
    s.image = {6, 2, 2, 3};
    s.stem_stride = 2;
  });
  add("two_pixels", [](TinySpec& s) {
    s.image = {3, 4, 4, 1};
    s.stem_stride = 2;
  });
  add("stem_1x1_stride2", [](TinySpec& s) {
    s.stem_kernel = 1;
    s.stem_stride = 2;
    s.stem_padding = {};
  });
  add("no_dropout_no_smoothing", [](TinySpec& s) {
    s.dropout = 0;
    s.smoothing = 0;
  });
  return specs;
}

// A beta adds a constant to each channel. The loss does not depend on it if no activation follows
// and a 1x1 convolution leads to a batch norm with the batch's own mean, which subtracts it again.
bool HasNoEffect(const TinySpec& spec, const std::string& parameter) {
  if (spec.statistics != Statistics::kBatch) return false;
  if (parameter == "project/beta") return true;  // this layer has no activation
  const bool before_1x1 = parameter == "stem/beta" || parameter == "depthwise/beta";
  return before_1x1 && spec.activation == FusedActivation::kNone;
}

class TinyNetworkTest : public testing::TestWithParam<NamedSpec> {};

TEST_P(TinyNetworkTest, ReferenceGradientsMatchCentralDifferences) {
  const auto reference = MakeReferenceOperators<double>();
  TinyNetwork<double> network(GetParam().spec);
  network.Forward(reference.get());
  network.Backward(reference.get());
  constexpr double kStep = 1e-5;
  for (const auto& parameter : network.parameters()) {
    const std::vector<double> analytic = parameter->gradient;
    std::vector<double> numeric;
    for (double& value : parameter->value) {
      const double original = value;
      value = original + kStep;
      const double above = network.Forward(reference.get()).loss;
      value = original - kStep;
      const double below = network.Forward(reference.get()).loss;
      value = original;
      numeric.push_back((above - below) / (2 * kStep));
    }
    ExpectClose(GetParam().name + " " + parameter->name, numeric, analytic, 1e-6, 1e-3);
    double largest = 0.0;
    for (const double value : numeric) largest = std::max(largest, std::abs(value));
    if (HasNoEffect(GetParam().spec, parameter->name)) {
      EXPECT_LT(largest, 1e-8) << "the loss depends on " << parameter->name;
    } else {
      EXPECT_GT(largest, 1e-6) << "the gradient is zero for " << parameter->name;
    }
  }
}

TEST_P(TinyNetworkTest, FastMatchesReference) {
  const auto reference = MakeReferenceOperators<float>();
  ThreadPool pool(2);
  const auto fast = MakeFastOperators(&pool);
  TinyNetwork<float> expected(GetParam().spec), actual(GetParam().spec);
  const ClassificationResult a = expected.Forward(reference.get()), b = actual.Forward(fast.get());
  EXPECT_NEAR(a.loss, b.loss, 1e-5);
  EXPECT_EQ(a.top1, b.top1);
  EXPECT_EQ(a.top5, b.top5);
  expected.Backward(reference.get());
  actual.Backward(fast.get());
  for (size_t i = 0; i < expected.parameters().size(); ++i) {
    ExpectClose(GetParam().name + " " + expected.parameters()[i]->name,
                expected.parameters()[i]->gradient, actual.parameters()[i]->gradient, 2e-4, 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyNetworkTest, testing::ValuesIn(Specs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pushpull
