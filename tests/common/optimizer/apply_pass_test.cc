#include "common/optimizer/apply_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/bfloat16.h"
#include "tests/testkit/each_cpu_isa.h"
#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// Expects the same bits and reports the first element that differs.
void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& expected,
                    const std::string& label) {
  ASSERT_EQ(got.size(), expected.size()) << label;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << label << ": element " << i << " is " << got[i] << ", expected " << expected[i];
  }
}

struct RunOptions {
  int tasks = 1;
  int threads = 1;
  int misalign = 0;
  uint32_t halves = 0;  // passed to CutContributions
};

// Applies each of `steps` to all shards, one ApplyPass per shard, and returns all vectors of the
// whole model.
std::vector<float> RunSteps(const VariableLayout& layout, const OptimizerSpec& optimizer,
                            const std::vector<std::vector<FullGradient>>& steps,
                            const RunOptions& options) {
  const Sharding sharding(layout.total_elements(), options.tasks);
  ThreadPool pool(options.threads);
  const OwnedState initial = InitialState(layout, optimizer, 1);
  std::vector<ApplyPass> passes;
  std::vector<OwnedState> states[2];
  for (int shard = 0; shard < options.tasks; ++shard) {
    passes.emplace_back(&layout, sharding, shard, optimizer, &pool);
    const ElementRange range = sharding.shard(shard);
    for (auto& version : states) version.emplace_back(range.size(), optimizer);
    states[0][shard].CopyFrom(initial.From(range.begin));
  }
  for (size_t t = 0; t < steps.size(); ++t) {
    std::vector<double> norms;
    std::vector<std::vector<GradientContribution>> cut;
    for (int shard = 0; shard < options.tasks; ++shard) {
      cut.push_back(CutContributions(steps[t], sharding, shard, options.misalign, options.halves));
      if (!optimizer.measures_norms()) continue;
      const auto part = passes[shard].MeasureNorms(t + 1, cut[shard], states[t % 2][shard].view());
      EXPECT_TRUE(part.ok()) << part.status();
      norms.resize(part->size());
      for (size_t v = 0; v < norms.size(); ++v) norms[v] += (*part)[v];
    }
    for (int shard = 0; shard < options.tasks; ++shard) {
      const absl::Status status =
          passes[shard].Run(t + 1, cut[shard], norms, states[t % 2][shard].view(),
                            states[(t + 1) % 2][shard].vectors());
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // For each vector, the parts of all shards in order.
  std::vector<float> all;
  const OwnedState& first = states[0][0];
  for (int vector = 0; vector < first.num_vectors(); ++vector) {
    for (const OwnedState& state : states[steps.size() % 2]) state.AppendVector(vector, &all);
  }
  return all;
}

// Returns the norms that the step needs, summed over the whole model, or none if it needs none.
std::vector<double> Norms(const VariableLayout& layout, const OptimizerSpec& optimizer,
                          uint64_t step, const std::vector<FullGradient>& gradients,
                          const OwnedState& from) {
  if (!optimizer.measures_norms()) return {};
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(1);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  const auto norms =
      pass.MeasureNorms(step, CutContributions(gradients, sharding, 0, 0), from.view());
  EXPECT_TRUE(norms.ok()) << norms.status();
  return *norms;
}

std::vector<std::vector<FullGradient>> RandomSteps(const VariableLayout& layout, int steps,
                                                   const std::vector<uint64_t>& samples,
                                                   float scale = 1.0f) {
  std::vector<std::vector<FullGradient>> result(steps);
  for (int t = 0; t < steps; ++t) {
    for (size_t k = 0; k < samples.size(); ++k) {
      result[t].push_back(RandomGradient(layout, k, samples[k], 100 + t, scale));
    }
  }
  return result;
}

class EachOptimizer : public ::testing::TestWithParam<OptimizerReference> {
 protected:
  OptimizerSpec Make(const std::string& rest = "") { return MakeOptimizer(GetParam(), rest); }
  // Returns those of the clipping settings that the optimizer accepts.
  std::vector<std::string> With(const std::vector<std::string>& clips) {
    if (GetParam().update == nullptr && !GetParam().outer) return clips;
    return {""};
  }
};

INSTANTIATE_TEST_SUITE_P(ApplyPass, EachOptimizer, ::testing::ValuesIn(OptimizerReferences()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EachOptimizer, MatchesTheScalarFloatReferenceBitForBit) {
  ForEachCpuIsa([&] {
    const VariableLayout layout = MakeLayout();
    const OptimizerSpec optimizer = Make();
    for (const std::vector<uint64_t>& samples :
         {std::vector<uint64_t>{5}, {11, 10}, {11, 10, 10}, {7, 0, 3, 9, 1}}) {
      const auto steps = RandomSteps(layout, 4, samples);
      const std::vector<float> got = RunSteps(layout, optimizer, steps, {.threads = 2});
      OwnedState from = InitialState(layout, optimizer, 1);
      for (size_t t = 0; t < steps.size(); ++t) {
        OwnedState to(layout.total_elements(), optimizer);
        OracleApply(layout, optimizer, GetParam(), t + 1, steps[t],
                    Norms(layout, optimizer, t + 1, steps[t], from), from.view(), to.vectors());
        from = to;
      }
      ExpectSameBits(got, from.Flatten(), absl::StrCat(samples.size(), " contributors"));
    }
  });
}

TEST_P(EachOptimizer, SumsBfloat16ChunksLikeTheSameFloats) {
  const VariableLayout layout = MakeLayout();
  for (const std::string& clip : With({"", "gradient_clipping_by_norm: 4"})) {
    const OptimizerSpec optimizer = Make(clip);
    for (const uint32_t halves : {1u, 2u, 5u, 7u}) {
      auto steps = RandomSteps(layout, 3, {11, 10, 10});
      const std::vector<float> got = RunSteps(
          layout, optimizer, steps, {.tasks = 2, .threads = 2, .misalign = 3, .halves = halves});
      for (auto& contributors : steps) {
        for (size_t k = 0; k < contributors.size(); ++k) {
          if ((halves >> k & 1) == 0) continue;
          for (float& value : contributors[k].values) value = ToFloat(ToBfloat16(value));
        }
      }
      ExpectSameBits(got, RunSteps(layout, optimizer, steps, {.tasks = 2}),
                     absl::StrCat("halves ", halves, " ", clip));
    }
  }
}

TEST_P(EachOptimizer, DoesNotDependOnTheInstructionSet) {
  const VariableLayout layout = MakeLayout();
  const auto steps = RandomSteps(layout, 3, {11, 10});
  for (const std::string& clip : With({"", "gradient_clipping_by_norm: 4"})) {
    const OptimizerSpec optimizer = Make(clip);
    const std::vector<float> best = RunSteps(layout, optimizer, steps, {.halves = 2});
    ForEachCpuIsa(
        [&] { ExpectSameBits(RunSteps(layout, optimizer, steps, {.halves = 2}), best, clip); });
  }
}

TEST_P(EachOptimizer, StaysCloseToTheDoubleReferenceOverManySteps) {
  const VariableLayout layout = MakeLayout();
  for (const std::string& clip :
       With({"", "gradient_clipping_by_norm: 4", "gradient_clipping_by_global_norm: 20"})) {
    const OptimizerSpec optimizer = Make(clip);
    const auto steps = RandomSteps(layout, 150, {11, 10, 10});
    const std::vector<float> got = RunSteps(layout, optimizer, steps, {.threads = 2});
    DoubleState state =
        ToDouble(InitialState(layout, optimizer, 1), optimizer, layout.total_elements());
    for (size_t t = 0; t < steps.size(); ++t) {
      DoubleApply(layout, optimizer, GetParam(), t + 1, steps[t], &state);
    }
    std::vector<double> expected = state.weights;
    for (int s = 0; s < optimizer.num_slots(); ++s) {
      expected.insert(expected.end(), state.slots[s].begin(), state.slots[s].end());
    }
    expected.insert(expected.end(), state.ema.begin(), state.ema.end());
    ASSERT_EQ(got.size(), expected.size());
    // The bound covers 150 steps with about ten roundings each. A rounding adds a relative error of
    // 6e-8 to values of about 1, or up to 10 for momentum.
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i]));
      if (!(error <= worst)) {
        worst = error;
        where = i;
      }
    }
    EXPECT_LT(worst, 2e-5) << "clip: \"" << clip << "\" element " << where << " is " << got[where]
                           << ", expected " << expected[where];
    EXPECT_GT(worst, 0.0) << "float and double cannot agree exactly, so nothing was compared";
  }
}

TEST_P(EachOptimizer, WarmsTheMovingAverageUpLikeBothReferences) {
  const VariableLayout layout = MakeLayout();
  OptimizerSpec optimizer = Make();
  const auto steps = RandomSteps(layout, 12, {11, 10});
  const std::vector<float> constant = RunSteps(layout, optimizer, steps, {});
  optimizer.ema_warmup = true;
  const std::vector<float> got = RunSteps(layout, optimizer, steps, {.tasks = 2, .threads = 2});
  OwnedState from = InitialState(layout, optimizer, 1);
  DoubleState state = ToDouble(from, optimizer, layout.total_elements());
  for (size_t t = 0; t < steps.size(); ++t) {
    OwnedState to(layout.total_elements(), optimizer);
    OracleApply(layout, optimizer, GetParam(), t + 1, steps[t],
                Norms(layout, optimizer, t + 1, steps[t], from), from.view(), to.vectors());
    from = to;
    DoubleApply(layout, optimizer, GetParam(), t + 1, steps[t], &state);
  }
  ExpectSameBits(got, from.Flatten(), "warm-up");
  const size_t begin = got.size() - state.ema.size();
  double worst = 0;
  double warmed_up = 0;
  for (size_t i = 0; i < state.ema.size(); ++i) {
    worst = std::max(worst, std::abs(got[begin + i] - state.ema[i]) / (1 + std::abs(state.ema[i])));
    warmed_up = std::max<double>(warmed_up, std::abs(got[begin + i] - constant[begin + i]));
  }
  EXPECT_LT(worst, 2e-6);
  EXPECT_GT(warmed_up, 1e-3) << "the warm-up has changed nothing";
}

TEST_P(EachOptimizer, DoesNotDependOnThreadsTasksOrAlignment) {
  const VariableLayout layout = MakeLargeLayout();
  for (const std::string& clip :
       With({"", "gradient_clipping_by_norm: 5", "gradient_clipping_by_global_norm: 30"})) {
    const OptimizerSpec optimizer = Make(clip);
    const auto steps = RandomSteps(layout, 2, {11, 10, 10});
    const std::vector<float> expected = RunSteps(layout, optimizer, steps, {});
    for (const RunOptions& options : {RunOptions{.threads = 3},
                                      {.misalign = 1},
                                      {.tasks = 2, .threads = 2, .misalign = 7},
                                      {.tasks = 3},
                                      {.tasks = 7, .threads = 2, .misalign = 13}}) {
      ExpectSameBits(RunSteps(layout, optimizer, steps, options), expected,
                     absl::StrCat(clip, " tasks ", options.tasks, " threads ", options.threads,
                                  " misalign ", options.misalign));
    }
  }
}

TEST_P(EachOptimizer, CopiesTheStateWithoutContributions) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = Make();
  const std::vector<float> expected = InitialState(layout, optimizer, 1).Flatten();
  ExpectSameBits(RunSteps(layout, optimizer, {{}}, {}), expected, "no contribution");
  ExpectSameBits(RunSteps(layout, optimizer, {{RandomGradient(layout, 0, 0, 5)}}, {}), expected,
                 "a void contribution");
}

TEST_P(EachOptimizer, KeepsPaddingZeroAndFrozenVariablesUnchanged) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = Make();
  const std::vector<float> got = RunSteps(layout, optimizer, RandomSteps(layout, 3, {1, 2}), {});
  const std::vector<float> initial = InitialState(layout, optimizer, 1).Flatten();
  const int64_t total = layout.total_elements();
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t element = i % total;
    const int64_t v = layout.VariableAt(element);
    if (element >= layout.offset(v) + layout.num_elements(v)) {
      ASSERT_EQ(got[i], 0.0f) << "padding after " << layout.variables()[v].name;
    } else if (layout.variables()[v].frozen) {
      ASSERT_EQ(got[i], initial[i]) << layout.variables()[v].name;
    } else if (i < total) {
      ASSERT_NE(got[i], initial[i]) << layout.variables()[v].name << " did not move";
    }
  }
}

// A restart may freeze variables whose averages have not come to them yet.
TEST_P(EachOptimizer, TheAverageOfAFrozenVariableComesToIt) {
  const VariableLayout layout = MakeLayout();
  OptimizerSpec optimizer = Make();
  optimizer.ema_decay = 0.5;
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(2);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  const OwnedState state = InitialState(layout, optimizer, 1);
  std::vector<float> frozen;
  std::vector<float*> averages;
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    if (!variable.frozen || variable.kind != VariableKind::kTrainable) continue;
    for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
      frozen.push_back(state.vectors().weights[i]);
      averages.push_back(&state.vectors().ema[i]);
      *averages.back() = frozen.back() + 8.0f;
    }
  }
  ASSERT_FALSE(frozen.empty());
  const auto steps = RandomSteps(layout, 3, {11, 10});
  for (size_t t = 0; t < steps.size(); ++t) {
    const std::vector<double> norms = Norms(layout, optimizer, t + 1, steps[t], state);
    const auto contributions = CutContributions(steps[t], sharding, 0, 0);
    ASSERT_TRUE(pass.Run(t + 1, contributions, norms, state.view(), state.vectors()).ok());
  }
  for (size_t i = 0; i < frozen.size(); ++i) {
    ASSERT_NEAR(*averages[i], frozen[i] + 1.0f, 1e-5f) << "three steps halve the distance";
  }
}

TEST_P(EachOptimizer, MayOverwriteTheVectorsThatItReads) {
  const VariableLayout layout = MakeLargeLayout();
  for (const std::string& clip : With({"", "gradient_clipping_by_norm: 5"})) {
    const OptimizerSpec optimizer = Make(clip);
    auto steps = RandomSteps(layout, 3, {11, 10});
    steps.push_back({RandomGradient(layout, 0, 0, 5)});  // a void one, which copies
    const Sharding sharding(layout.total_elements(), 1);
    ThreadPool pool(2);
    const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
    const OwnedState state = InitialState(layout, optimizer, 1);
    for (size_t t = 0; t < steps.size(); ++t) {
      const std::vector<double> norms = Norms(layout, optimizer, t + 1, steps[t], state);
      const auto contributions = CutContributions(steps[t], sharding, 0, 0);
      ASSERT_TRUE(pass.Run(t + 1, contributions, norms, state.view(), state.vectors()).ok());
    }
    ExpectSameBits(state.Flatten(), RunSteps(layout, optimizer, steps, {}), clip);
  }
}

// Local steps count the learning rate on from round to round, but begin with fresh slots.
TEST_P(EachOptimizer, TheRuleAndTheLearningRateMayHaveDifferentNumbers) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = Make();
  constexpr uint64_t kEarlier = 40;
  OptimizerSpec later = optimizer;
  config::LearningRate rate;
  rate.mutable_constant_learning_rate()->set_learning_rate(
      optimizer.learning_rate.At(kEarlier + 1));
  later.learning_rate = LearningRateSchedule(rate);
  const FullGradient gradient = RandomGradient(layout, 0, 3, 5);
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(1);
  const OwnedState from = InitialState(layout, optimizer, 1);
  const auto run = [&](const OptimizerSpec& spec, UpdateNumber number) {
    const ApplyPass pass(&layout, sharding, 0, spec, &pool);
    const auto contributions = CutContributions({gradient}, sharding, 0, 0);
    std::vector<double> norms;
    if (spec.measures_norms()) norms = *pass.MeasureNorms(number, contributions, from.view());
    const OwnedState to(layout.total_elements(), spec);
    EXPECT_TRUE(pass.Run(number, contributions, norms, from.view(), to.vectors()).ok());
    return to.Flatten();
  };
  ExpectSameBits(run(optimizer, UpdateNumber(2, kEarlier + 1)), run(later, 2), "update 2");
  if (!GetParam().outer) {
    EXPECT_NE(run(optimizer, 2), run(later, 2));
  }
}

TEST(ApplyPassTest, WorksWithoutEma) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = MakeOptimizer(
      "optimizer { use_moving_average: false momentum_optimizer { "
      "learning_rate { constant_learning_rate { learning_rate: 0.5 } } } }");
  const auto steps = RandomSteps(layout, 1, {3});
  OwnedState to(layout.total_elements(), optimizer);
  OracleApply(layout, optimizer, ReferenceNamed("Momentum"), 1, steps[0], {},
              InitialState(layout, optimizer, 1).view(), to.vectors());
  ExpectSameBits(RunSteps(layout, optimizer, steps, {}), to.Flatten(), "no EMA");
}

TEST(ApplyPassTest, MovingStatisticsFollowTheMeanAndEqualTheirEma) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = MakeAdam();
  FullGradient a = RandomGradient(layout, 0, 3, 1);
  FullGradient b = RandomGradient(layout, 1, 1, 2);
  const int64_t at = layout.offset(*layout.Find("bn/moving_mean"));
  a.values[at] = 2.0f;
  b.values[at] = 6.0f;
  const float before = InitialState(layout, optimizer, 1).vectors().weights[at];
  const std::vector<float> got = RunSteps(layout, optimizer, {{a, b}}, {});
  EXPECT_FLOAT_EQ(got[at], before + 0.1f * (3.0f - before));
  EXPECT_EQ(got[got.size() - layout.total_elements() + at], got[at]);
}

TEST(ApplyPassTest, AMovingStatisticWithoutDecayBecomesTheMean) {
  std::vector<VariableSpec> variables = MakeLayout().variables();
  for (VariableSpec& variable : variables) variable.moving_average_decay = 0.0f;
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  const OptimizerSpec optimizer = MakeAdam();
  FullGradient gradient = RandomGradient(layout, 0, 3, 1);
  const int64_t at = layout.offset(*layout.Find("bn/moving_mean"));
  gradient.values[at] = 1e-12f;  // is lost in the sum with the old value, which is about 1
  const std::vector<float> got = RunSteps(layout, optimizer, {{gradient}}, {});
  EXPECT_EQ(got[at], 1e-12f);
  EXPECT_EQ(got[at + 1], gradient.values[at + 1]);
  EXPECT_EQ(got[got.size() - layout.total_elements() + at], 1e-12f);
}

TEST_P(EachOptimizer, TheLearningRateMultiplierScalesTheUpdate) {
  const OptimizerSpec optimizer = Make();
  const auto weights_after = [&](float multiplier) {
    VariableSpec variable = MakeVariable("dense/weights", {30, 41});
    variable.l2_weight = 0.01f;
    variable.learning_rate_multiplier = multiplier;
    const VariableLayout layout = *VariableLayout::Create({variable});
    std::vector<float> all = RunSteps(layout, optimizer, RandomSteps(layout, 1, {1}), {});
    all.resize(layout.num_elements(0));
    return all;
  };
  const std::vector<float> none = weights_after(0.0f);
  const std::vector<float> whole = weights_after(1.0f);
  const std::vector<float> tenth = weights_after(0.1f);
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_NE(whole[i], none[i]) << i;
    EXPECT_NEAR(tenth[i] - none[i], 0.1 * (whole[i] - none[i]), 1e-6) << i;
  }
}

TEST(ApplyPassTest, NormsIncludeL2AndTheGradientMultiplier) {
  const VariableLayout layout = MakeLayout();
  const OptimizerSpec optimizer = MakeAdam("gradient_clipping_by_norm: 3");
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(2);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  const OwnedState state = InitialState(layout, optimizer, 1);
  const std::vector<FullGradient> gradients = {RandomGradient(layout, 0, 2, 1),
                                               RandomGradient(layout, 1, 6, 1)};
  const auto norms =
      pass.MeasureNorms(1, CutContributions(gradients, sharding, 0, 3), state.view());
  ASSERT_TRUE(norms.ok()) << norms.status();
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    double expected = 0;
    for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
      const double g = (0.25 * gradients[0].values[i] + 0.75 * gradients[1].values[i] +
                        variable.l2_weight * state.view().weights[i]) *
                       variable.gradient_multiplier;
      if (OptimizerSpec::Updates(variable)) expected += g * g;
    }
    EXPECT_NEAR((*norms)[v], expected, 1e-6 * expected) << variable.name;
  }
  EXPECT_EQ((*norms)[*layout.Find("frozen/weights")], 0.0);
}

TEST(ApplyPassTest, ClipsOnlyGradientsLongerThanTheNorm) {
  const VariableLayout layout =
      *VariableLayout::Create({MakeVariable("a", {2}), MakeVariable("b", {2})});
  const auto run = [&](const std::string& clip) {
    const OptimizerSpec optimizer = MakeOptimizer(
        clip +
        " optimizer { use_moving_average: false momentum_optimizer { momentum_optimizer_value: 0 "
        "learning_rate { constant_learning_rate { learning_rate: 1 } } } }");
    FullGradient gradient{0, 1, std::vector<float>(layout.total_elements())};
    gradient.values[layout.offset(0)] = 3.0f;
    gradient.values[layout.offset(0) + 1] = 4.0f;
    gradient.values[layout.offset(1)] = 12.0f;
    const std::vector<float> after = RunSteps(layout, optimizer, {{gradient}}, {});
    const std::vector<float> before = InitialState(layout, optimizer, 1).Flatten();
    return std::vector<float>{before[0] - after[0], before[1] - after[1], before[16] - after[16]};
  };
  const auto expect = [](const std::vector<float>& got, std::vector<float> expected) {
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
  };
  expect(run("gradient_clipping_by_norm: 5"), {3, 4, 5});
  expect(run("gradient_clipping_by_norm: 4.999"), {2.9994f, 3.9992f, 4.999f});
  expect(run("gradient_clipping_by_global_norm: 6.5"), {1.5, 2, 6});
  expect(run("gradient_clipping_by_global_norm: 13"), {3, 4, 12});
}

TEST(ApplyPassTest, RefusesContributionsOfTheWrongShape) {
  const VariableLayout layout = MakeLargeLayout();
  const OptimizerSpec optimizer = MakeAdam("gradient_clipping_by_norm: 3");
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(1);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  const OwnedState from = InitialState(layout, optimizer, 1);
  const OwnedState to(layout.total_elements(), optimizer);
  const std::vector<double> norms(layout.num_variables(), 1.0);
  const auto error = [&](const std::vector<GradientContribution>& contributions,
                         const std::vector<double>& squared_norms) {
    const absl::Status status =
        pass.Run(1, contributions, squared_norms, from.view(), to.vectors());
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  const auto good = CutContributions({RandomGradient(layout, 4, 1, 1)}, sharding, 0, 0);
  ASSERT_EQ(good[0].chunks.size(), 6);
  auto bad = good;
  bad[0].chunks.pop_back();
  EXPECT_THAT(error(bad, norms), HasSubstr("contribution of replica 4 has 5 chunks, expected 6"));
  bad = good;
  bad[0].chunks[1].payload.size_bytes -= 4;
  EXPECT_THAT(error(bad, norms),
              HasSubstr("chunk 1 of replica 4 has 131068 bytes in encoding 0, expected 131072"));
  EXPECT_THAT(error(good, {}), HasSubstr("got 0 squared norms"));
  EXPECT_EQ(to.Flatten(), OwnedState(layout.total_elements(), optimizer).Flatten());
}

TEST(ApplyPassTest, HandlesAnEmptyShard) {
  const VariableLayout layout = *VariableLayout::Create({MakeVariable("a", {2})});
  const OptimizerSpec optimizer = MakeAdam();
  const Sharding sharding(layout.total_elements(), 2);
  ASSERT_EQ(sharding.shard(1).size(), 0);
  ThreadPool pool(1);
  const ApplyPass pass(&layout, sharding, 1, optimizer, &pool);
  const OwnedState state(0, optimizer);
  const auto contributions = CutContributions({RandomGradient(layout, 0, 1, 1)}, sharding, 1, 0);
  EXPECT_TRUE(pass.Run(1, contributions, {}, state.view(), state.vectors()).ok());
  EXPECT_TRUE(pass.Run(1, {}, {}, state.view(), state.vectors()).ok());
  EXPECT_EQ(pass.BytesMoved(3), 0);
}

}  // namespace
}  // namespace pushpull
