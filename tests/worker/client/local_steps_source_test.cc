#include "worker/client/local_steps_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

constexpr uint32_t kLocalSteps = 3;
constexpr uint64_t kSamples = 5;

config::TrainConfig Parse(const std::string& text) {
  config::TrainConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

// Computes gradients that depend on position, replica and weights, and records its calls.
class RecordingSource final : public GradientSource {
 public:
  explicit RecordingSource(const VariableLayout* layout) : layout_(layout) {}

  // Returns the gradient of a mini-batch at these weights.
  template <typename Vector>
  FullGradient Gradient(uint64_t position, uint32_t replica, const Vector& weights) const {
    const FullGradient random = RandomGradient(*layout_, replica, kSamples, 100 + position);
    FullGradient gradient{replica, kSamples, std::vector<float>(random.values.size())};
    for (int64_t v = 0; v < layout_->num_variables(); ++v) {
      const int64_t begin = layout_->offset(v);
      for (int64_t i = begin; i < begin + layout_->num_elements(v); ++i) {
        gradient.values[i] = random.values[i] + 0.25f * static_cast<float>(weights[i]);
      }
    }
    return gradient;
  }

  uint64_t num_images() const override { return 77; }
  void StageCompute(uint64_t position, uint32_t replica, absl::Span<const float>) override {
    calls_.push_back(absl::StrCat("stage ", position, " of ", replica));
  }
  void StageWeights(absl::Span<const float>, int64_t first, int64_t end) override {
    calls_.push_back(absl::StrCat("weights ", first, " to ", end));
  }
  void NoteWeights(uint64_t version, absl::Span<const float> weights) override {
    calls_.push_back(absl::StrCat("version ", version));
    noted_ = weights.data();
  }
  absl::Status LoadInput(uint64_t position, uint32_t replica) override {
    calls_.push_back(absl::StrCat("load ", position, " of ", replica));
    return absl::OkStatus();
  }
  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override {
    calls_.push_back(absl::StrCat("compute ", position, " of ", replica));
    weights_.push_back(weights.data());
    const FullGradient full = Gradient(position, replica, weights);
    std::copy(full.values.begin(), full.values.end(), gradient.begin());
    advance(0);
    GradientResult result;
    result.samples = kSamples;
    if (edit_) edit_(position, gradient, &result);
    return result;
  }

  const VariableLayout* const layout_;
  std::function<void(uint64_t, absl::Span<float>, GradientResult*)> edit_;
  std::vector<std::string> calls_;
  std::vector<const float*> weights_;  // arguments of Compute
  const float* noted_ = nullptr;
};

constexpr char kGradientDescent[] =
    "optimizer { momentum_optimizer { momentum_optimizer_value: 0 learning_rate { "
    "constant_learning_rate { learning_rate: 0.1 } } } }";

class LocalStepsSourceTest : public ::testing::Test {
 protected:
  explicit LocalStepsSourceTest(VariableLayout layout = MakeLayout())
      : layout_(std::move(layout)), inner_(&layout_) {
    const OptimizerSpec plain = MakeMomentum();
    const OwnedState initial = InitialState(layout_, plain, 7);
    weights_ = *inner_.AllocateVector(layout_.total_elements());
    gradient_ = *inner_.AllocateVector(layout_.total_elements());
    std::copy_n(initial.view().weights, layout_.total_elements(), weights_.get());
  }

  // Computes the contributions at these positions with gradient descent, and returns the last one.
  std::vector<float> LastOf(RecordingSource* inner, const VariableLayout& layout,
                            const std::vector<uint64_t>& positions) {
    LocalStepsSource source(inner, &layout,
                            Parse(absl::StrCat(kGradientDescent, " local_steps: ", kLocalSteps)),
                            &pool_, [] { return absl::OkStatus(); });
    const std::vector<float> weights(layout.total_elements(), 0.5f);
    std::vector<float> gradient(layout.total_elements());
    source.NoteWeights(0, weights);
    for (const uint64_t position : positions) {
      EXPECT_TRUE(
          source.Compute(position, 0, weights, absl::MakeSpan(gradient), [](int64_t) {}).ok());
    }
    return gradient;
  }
  void Make(const std::string& train_config) {
    source_ = std::make_unique<LocalStepsSource>(
        &inner_, &layout_, Parse(absl::StrCat(train_config, " local_steps: ", kLocalSteps)), &pool_,
        [this] { return check_; });
  }
  absl::Span<const float> weights() const {
    return {weights_.get(), static_cast<size_t>(layout_.total_elements())};
  }
  absl::Span<float> gradient() const {
    return {gradient_.get(), static_cast<size_t>(layout_.total_elements())};
  }
  absl::StatusOr<GradientResult> Compute(uint64_t position = 0, uint32_t replica = 0,
                                         uint64_t version = 0) {
    source_->NoteWeights(version, weights());
    advanced_.clear();
    return source_->Compute(position, replica, weights(), gradient(),
                            [this](int64_t first) { advanced_.push_back(first); });
  }
  // Returns what a round has to contribute, computed in double.
  std::vector<double> Expected(const std::string& optimizer_config,
                               const OptimizerReference& reference, uint64_t position) {
    const OptimizerSpec optimizer = MakeOptimizer(optimizer_config);
    const OwnedState start = InitialState(layout_, optimizer, 7);
    DoubleState state = ToDouble(start, optimizer, layout_.total_elements());
    for (uint32_t h = 0; h < kLocalSteps; ++h) {
      DoubleApply(layout_, optimizer, reference, h + 1,
                  {inner_.Gradient(position * kLocalSteps + h, 0, state.weights)}, &state);
    }
    std::vector<double> expected(layout_.total_elements(), 0.0);
    for (int64_t v = 0; v < layout_.num_variables(); ++v) {
      const VariableSpec& variable = layout_.variables()[v];
      const int64_t begin = layout_.offset(v);
      for (int64_t i = begin; i < begin + layout_.num_elements(v) && !variable.frozen; ++i) {
        expected[i] = weights()[i] - state.weights[i];
        if (variable.kind != VariableKind::kMovingStatistic) continue;
        // The server moves the statistic once, and that has to lead to the clone's value.
        const double decay = std::pow(variable.moving_average_decay, kLocalSteps);
        expected[i] = (state.weights[i] - decay * weights()[i]) / (1 - decay);
      }
    }
    return expected;
  }
  // Expects the double values up to the rounding errors of differences of weights, which are below
  // 2 here.
  void ExpectContribution(const std::vector<double>& expected, const std::string& label) {
    double worst = 0.0;
    double largest = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::abs(gradient()[i] - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
    }
    EXPECT_LE(worst, 2e-6) << label;
    EXPECT_GE(largest, 1e-3) << label;
  }

  const VariableLayout layout_;
  RecordingSource inner_;
  ThreadPool pool_{2};
  absl::Status check_;
  std::shared_ptr<float> weights_, gradient_;
  std::unique_ptr<LocalStepsSource> source_;
  std::vector<int64_t> advanced_;
};

std::string ConfigOf(const OptimizerReference& reference, const std::string& rest = "") {
  return absl::StrCat(
      "optimizer { ", reference.field, " { ", reference.config,
      " learning_rate { exponential_decay_learning_rate { initial_learning_rate: 0.03 "
      "decay_steps: 2 decay_factor: 0.5 } } } use_moving_average: false } ",
      rest);
}

// The second round shows that slots and bias corrections begin afresh.
TEST_F(LocalStepsSourceTest, TakesTheStepsOfEveryOptimizer) {
  for (const OptimizerReference& reference : OptimizerReferences()) {
    if (reference.outer) continue;
    const std::string config = ConfigOf(reference);
    Make(config);
    for (const uint64_t position : {0, 4}) {
      const absl::StatusOr<GradientResult> result = Compute(position);
      ASSERT_TRUE(result.ok()) << result.status();
      ExpectContribution(Expected(config, reference, position), reference.name);
    }
  }
}

TEST_F(LocalStepsSourceTest, ClipsTheGradientOfEachMiniBatch) {
  const OptimizerReference& momentum = ReferenceNamed("Momentum");
  for (const char* clip : {"gradient_clipping_by_norm: 2", "gradient_clipping_by_global_norm: 2"}) {
    const std::string config = ConfigOf(momentum, clip);
    Make(config);
    ASSERT_TRUE(Compute().ok());
    ExpectContribution(Expected(config, momentum, 0), clip);
  }
}

TEST_F(LocalStepsSourceTest, TheLearningRateCountsMiniBatchesFromTheVersion) {
  inner_.edit_ = [](uint64_t, absl::Span<float> gradient, GradientResult*) {
    std::fill(gradient.begin(), gradient.end(), 1.0f);
  };
  Make(
      "optimizer { momentum_optimizer { momentum_optimizer_value: 0 learning_rate { "
      "exponential_decay_learning_rate { initial_learning_rate: 0.5 decay_steps: 1 "
      "decay_factor: 0.5 } } } }");
  ASSERT_TRUE(Compute(/*position=*/9, /*replica=*/0, /*version=*/2).ok());
  const int64_t scalar = layout_.offset(*layout_.Find("scalar"));
  EXPECT_NEAR(gradient()[scalar], std::pow(0.5, 7) + std::pow(0.5, 8) + std::pow(0.5, 9), 1e-6);
}

TEST_F(LocalStepsSourceTest, HandsOnHintsAndPositionsOfMiniBatches) {
  Make(kGradientDescent);
  EXPECT_EQ(source_->num_images(), 77);
  source_->StageCompute(5, 1, weights());
  source_->StageWeights(weights(), 16, 32);
  source_->NoteWeights(8, weights());
  ASSERT_TRUE(source_->LoadInput(5, 1).ok());
  ASSERT_TRUE(source_->Compute(5, 1, weights(), gradient(), [](int64_t) {}).ok());
  EXPECT_THAT(inner_.calls_, ::testing::ElementsAre(
                                 "stage 15 of 1", "weights 16 to 32", "version 8", "load 15 of 1",
                                 "compute 15 of 1", "load 16 of 1", "compute 16 of 1",
                                 "load 17 of 1", "compute 17 of 1", "version 8"));
  EXPECT_EQ(inner_.weights_[0], weights_.get()) << "these may be staged";
  EXPECT_NE(inner_.weights_[1], weights_.get());
  EXPECT_EQ(inner_.noted_, weights_.get());
}

TEST_F(LocalStepsSourceTest, TheSameRoundGivesTheSameBits) {
  Make(ConfigOf(ReferenceNamed("Adam")));
  ASSERT_TRUE(Compute(3, 1, 3).ok());
  const std::vector<float> first(gradient().begin(), gradient().end());
  ASSERT_TRUE(Compute(4, 0, 4).ok());
  EXPECT_NE(std::vector<float>(gradient().begin(), gradient().end()), first);
  ASSERT_TRUE(Compute(3, 1, 3).ok());
  EXPECT_EQ(std::vector<float>(gradient().begin(), gradient().end()), first);
}

TEST_F(LocalStepsSourceTest, LossAndMetricsAreMeansOverAllSamples) {
  inner_.edit_ = [](uint64_t position, absl::Span<float>, GradientResult* result) {
    result->samples = position == 2 ? 6 : 1;
    result->loss = static_cast<double>(position);
    const auto add = [&](const char* name, double value) {
      ps::Metric& metric = result->metrics.emplace_back();
      metric.set_name(name);
      metric.set_value(value);
    };
    add("accuracy", position == 2 ? 0.5 : 1.0);
    if (position == 1) add("only once", 3.0);
  };
  Make(kGradientDescent);
  const absl::StatusOr<GradientResult> result = Compute();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 8);
  EXPECT_DOUBLE_EQ(result->loss, (0.0 + 1.0 + 6 * 2.0) / 8);
  ASSERT_EQ(result->metrics.size(), 2);
  EXPECT_EQ(result->metrics[0].name(), "accuracy");
  EXPECT_DOUBLE_EQ(result->metrics[0].value(), 5.0 / 8);
  EXPECT_DOUBLE_EQ(result->metrics[1].value(), 3.0);
}

TEST_F(LocalStepsSourceTest, AMiniBatchWithoutSamplesChangesNothing) {
  inner_.edit_ = [](uint64_t position, absl::Span<float> gradient, GradientResult* result) {
    if (position > 0) result->samples = 0;
    if (position > 0) std::fill(gradient.begin(), gradient.end(), 1e30f);
  };
  Make(kGradientDescent);
  absl::StatusOr<GradientResult> result = Compute();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, kSamples);
  const int64_t scalar = layout_.offset(*layout_.Find("scalar"));
  EXPECT_NEAR(gradient()[scalar], 0.1f * inner_.Gradient(0, 0, weights()).values[scalar], 1e-6);
  result = Compute(/*position=*/1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 0);
  EXPECT_EQ(gradient()[scalar], 0.0f);
}

// What the empty mini-batches say of a statistic does not count, and one that is replaced in each
// mini-batch keeps its last value to the bit.
TEST_F(LocalStepsSourceTest, StatisticsAreThoseOfTheMiniBatchesWithSamples) {
  std::vector<VariableSpec> variables = layout_.variables();
  VariableSpec replaced = variables[*layout_.Find("bn/moving_mean")];
  replaced.name = "replaced";
  replaced.moving_average_decay = 0.0f;
  variables.push_back(replaced);
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  RecordingSource inner(&layout);
  inner.edit_ = [](uint64_t position, absl::Span<float> gradient, GradientResult* result) {
    if (position == 1) result->samples = 0;
    std::fill(gradient.begin(), gradient.end(), position == 1 ? 1e30f : 0.1f + position);
    const float infinity = std::numeric_limits<float>::infinity();
    if (position >= kLocalSteps) std::fill(gradient.begin(), gradient.end(), infinity);
  };
  // The first round overflows, which must leave nothing behind.
  const std::vector<float> gradient = LastOf(&inner, layout, {1, 0});
  const int64_t mean = *layout.Find("bn/moving_mean");
  const float decay = layout.variables()[mean].moving_average_decay;
  EXPECT_NEAR(gradient[layout.offset(mean)], (decay * 0.1 + 2.1) / (decay + 1), 1e-6);
  EXPECT_EQ(gradient[layout.offset(*layout.Find("replaced"))], 0.1f + 2);
}

// The contribution is written in parts of 64 Ki elements.
TEST_F(LocalStepsSourceTest, LargeStatisticsAreWhole) {
  std::vector<VariableSpec> variables = layout_.variables();
  for (const char* name : {"large/moving_mean", "large/moving_variance"}) {
    VariableSpec large = layout_.variables()[*layout_.Find("bn/moving_mean")];
    large.name = name;
    large.shape = {200000};
    variables.push_back(large);
  }
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  RecordingSource inner(&layout);
  const auto value = [](int64_t i) { return static_cast<float>(i % 997); };
  inner.edit_ = [&](uint64_t, absl::Span<float> gradient, GradientResult*) {
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = value(static_cast<int64_t>(i));
  };
  const std::vector<float> gradient = LastOf(&inner, layout, {0});
  for (const char* name : {"large/moving_mean", "large/moving_variance"}) {
    const int64_t begin = layout.offset(*layout.Find(name));
    for (int64_t i = begin; i < begin + 200000; ++i) ASSERT_NEAR(gradient[i], value(i), 1e-3) << i;
  }
}

TEST_F(LocalStepsSourceTest, ARoundThatIsNoLongerWantedEndsBetweenMiniBatches) {
  Make(kGradientDescent);
  inner_.edit_ = [this](uint64_t position, absl::Span<float>, GradientResult*) {
    if (position == 1) check_ = absl::CancelledError("enough");
  };
  EXPECT_EQ(Compute().status(), absl::CancelledError("enough"));
  EXPECT_EQ(inner_.weights_.size(), 2);
  EXPECT_TRUE(advanced_.empty());
}

TEST_F(LocalStepsSourceTest, ALossThatIsNotFiniteEndsTheRoundWithItsGradient) {
  Make(kGradientDescent);
  inner_.edit_ = [](uint64_t position, absl::Span<float> gradient, GradientResult* result) {
    if (position != 1) return;
    gradient[3] = std::numeric_limits<float>::infinity();
    result->loss = std::numeric_limits<double>::quiet_NaN();
  };
  const absl::StatusOr<GradientResult> result = Compute();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isnan(result->loss));
  EXPECT_TRUE(std::isinf(gradient()[3]));
  EXPECT_EQ(inner_.weights_.size(), 2);
  EXPECT_TRUE(advanced_.empty());
}

class LargeLocalStepsSourceTest : public LocalStepsSourceTest {
 protected:
  LargeLocalStepsSourceTest() : LocalStepsSourceTest(MakeLargeLayout()) {}
};

// Elements that have been announced are sent at once, so they may not change any more.
TEST_F(LargeLocalStepsSourceTest, AnnouncesTheContributionFromTheEndInParts) {
  Make(kGradientDescent);
  source_->NoteWeights(0, weights());
  std::vector<float> announced(layout_.total_elements());
  int64_t last = layout_.total_elements();
  int calls = 0;
  const auto advance = [&](int64_t first) {
    ++calls;
    EXPECT_LT(first, last);
    std::copy(gradient().begin() + first, gradient().begin() + last, announced.begin() + first);
    last = first;
  };
  ASSERT_TRUE(source_->Compute(0, 0, weights(), gradient(), advance).ok());
  EXPECT_EQ(last, 0);
  EXPECT_GE(calls, 5);
  EXPECT_EQ(announced, std::vector<float>(gradient().begin(), gradient().end()));
}

}  // namespace
}  // namespace pushpull
