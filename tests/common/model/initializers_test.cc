#include "common/model/initializers.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/hyperparams.h"

namespace pushpull {
namespace {

VariableSpec Variable(const char* name, std::vector<int64_t> shape, Initializer initializer) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = std::move(shape);
  variable.initializer = initializer;
  return variable;
}

std::vector<float> Initialize(std::vector<VariableSpec> variables, uint64_t seed) {
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  std::vector<float> flat(layout.total_elements(), -7.0f);
  InitializeVariables(layout, seed, absl::MakeSpan(flat));
  return flat;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};

Moments Measure(const std::vector<float>& values) {
  Moments moments;
  for (const float value : values) {
    moments.mean += value / values.size();
    moments.largest = std::max<double>(moments.largest, std::abs(value));
  }
  for (const float value : values) {
    moments.deviation += std::pow(value - moments.mean, 2) / values.size();
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

TEST(InitializersTest, PartsAreThoseOfTheWhole) {
  for (const Initializer::Kind kind :
       {Initializer::Kind::kConstant, Initializer::Kind::kTruncatedNormal,
        Initializer::Kind::kRandomNormal, Initializer::Kind::kUniform}) {
    const VariableSpec variable = Variable("w", {128}, {kind, 0.5f, 0.1f});
    InitialValues values(variable, 7);
    std::vector<float> parts(128);
    values.Next(absl::MakeSpan(parts).subspan(0, 1));
    values.Next(absl::MakeSpan(parts).subspan(1, 49));
    values.Next(absl::MakeSpan(parts).subspan(50));
    EXPECT_EQ(parts, Initialize({variable}, 7));
  }
}

TEST(InitializersTest, TruncatedNormalStaysWithinTwoDeviations) {
  const Moments moments = Measure(
      Initialize({Variable("w", {64, 1024}, {Initializer::Kind::kTruncatedNormal, 0, 0.09f})}, 1));
  EXPECT_LE(moments.largest, 0.18 + 1e-6);
  EXPECT_NEAR(moments.mean, 0.0, 0.002);
  // A normal distribution truncated at two standard deviations keeps 0.8796 of its deviation.
  EXPECT_NEAR(moments.deviation, 0.09 * 0.8796, 0.001);
}

TEST(InitializersTest, NormalAndUniformHaveTheirMoments) {
  const Moments normal = Measure(
      Initialize({Variable("w", {65536}, {Initializer::Kind::kRandomNormal, 1.0f, 0.5f})}, 2));
  EXPECT_NEAR(normal.mean, 1.0, 0.01);
  EXPECT_NEAR(normal.deviation, 0.5, 0.01);
  const Moments uniform =
      Measure(Initialize({Variable("w", {65536}, {Initializer::Kind::kUniform, 0.0f, 0.3f})}, 3));
  EXPECT_LE(uniform.largest, 0.3);
  EXPECT_NEAR(uniform.deviation, 0.3 / std::sqrt(3.0), 0.003);
}

TEST(InitializersTest, ValuesDependOnlyOnSeedAndName) {
  const Initializer normal{Initializer::Kind::kTruncatedNormal, 0.0f, 1.0f};
  const std::vector<float> alone = Initialize({Variable("b", {16}, normal)}, 5);
  const std::vector<float> second =
      Initialize({Variable("a", {16}, normal), Variable("b", {16}, normal)}, 5);
  EXPECT_EQ(alone, std::vector<float>(second.begin() + 16, second.end()));
  EXPECT_NE(alone, std::vector<float>(second.begin(), second.begin() + 16));
  EXPECT_NE(alone, Initialize({Variable("b", {16}, normal)}, 6));
}

TEST(InitializersTest, PaddingIsZero) {
  const std::vector<float> flat =
      Initialize({Variable("g", {5}, {Initializer::Kind::kConstant, 1.0f, 0.0f})}, 1);
  ASSERT_EQ(flat.size(), 16u);
  for (size_t i = 0; i < flat.size(); ++i) EXPECT_EQ(flat[i], i < 5 ? 1.0f : 0.0f);
}

TEST(ResolveInitializerTest, VarianceScalingCountsFansAsSlimDoes) {
  config::WeightInitializer initializer;
  auto* scaling = initializer.mutable_variance_scaling_initializer();
  scaling->set_factor(1.0f);
  scaling->set_uniform(true);
  scaling->set_mode(config::VarianceScalingInitializer::FAN_AVG);
  const Initializer dense = ResolveInitializer(initializer, {1, 1, 100, 50});
  EXPECT_EQ(dense.kind, Initializer::Kind::kUniform);
  EXPECT_FLOAT_EQ(dense.stddev, std::sqrt(3.0f / 75.0f));
  scaling->set_mode(config::VarianceScalingInitializer::FAN_OUT);
  EXPECT_FLOAT_EQ(ResolveInitializer(initializer, {3, 3, 8, 16}).stddev, std::sqrt(3.0f / 144.0f));
  scaling->set_mode(config::VarianceScalingInitializer::FAN_IN);
  EXPECT_FLOAT_EQ(ResolveInitializer(initializer, {3, 3, 8, 1}).stddev, std::sqrt(3.0f / 72.0f));
}

}  // namespace
}  // namespace pushpull
