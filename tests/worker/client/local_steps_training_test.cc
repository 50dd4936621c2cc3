// Clones and server in one process: training with local steps.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/initializers.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kRounds = 8;
constexpr uint32_t kStepsPerRound = 4;
constexpr float kRate = 0.1f;
// Plain gradient descent in the clones; without EMA, so that a checkpoint is weights and slots.
constexpr char kRoundsOfFour[] =
    "num_steps: 8 local_steps: 4 optimizer { use_moving_average: false "
    "momentum_optimizer { momentum_optimizer_value: 0 } } ";

// The toy layout with a learning-rate multiplier, and with a frozen variable and a frozen moving
// statistic at the end. They are small, so that every shard has weights that change.
const VariableLayout& Layout() {
  static const VariableLayout* const layout = [] {
    std::vector<VariableSpec> variables = MakeToyLayout().variables();
    variables[3].learning_rate_multiplier = 0.5f;
    VariableSpec frozen = variables[2];
    frozen.name = "toy/frozen/weights";
    frozen.shape = {20};
    frozen.frozen = true;
    variables.push_back(frozen);
    frozen.name = "toy/frozen/moving_mean";
    frozen.kind = VariableKind::kMovingStatistic;
    frozen.moving_average_decay = 0.5f;
    variables.push_back(frozen);
    return new VariableLayout(*VariableLayout::Create(std::move(variables)));
  }();
  return *layout;
}

TestServerOptions Options(const std::string& train_config, int tasks = 1) {
  TestServerOptions options;
  options.train_config = absl::StrCat(kRoundsOfFour, train_config);
  options.layout = &Layout();
  options.tasks = tasks;
  return options;
}

// A whole job in double precision. The gradients are the toy source's.
class Reference {
 public:
  explicit Reference(uint32_t clones) : clones_(clones), toy_(&Layout(), clones) {
    std::vector<float> initial(Layout().total_elements());
    InitializeVariables(Layout(), /*seed=*/1, absl::MakeSpan(initial));
    weights_.assign(initial.begin(), initial.end());
  }

  // Trains a round. `outer` returns an element's new weight from the weight, the mean difference
  // and the index of the element. Clones update their weights by gradient descent.
  template <typename Outer>
  void Round(uint64_t round, const Outer& outer) {
    std::vector<double> mean(weights_.size(), 0.0);
    for (uint32_t k = 0; k < clones_; ++k) {
      const std::vector<double> local = Local(round, k);
      const double ratio = static_cast<double>(toy_.SamplesOf(k)) / ToyGradientSource::kGlobalBatch;
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += ratio * local[i];
    }
    for (int64_t v = 0; v < Layout().num_variables(); ++v) {
      const VariableSpec& variable = Layout().variables()[v];
      const int64_t begin = Layout().offset(v);
      for (int64_t i = begin; i < begin + Layout().num_elements(v) && !variable.frozen; ++i) {
        const bool statistic = variable.kind == VariableKind::kMovingStatistic;
        weights_[i] = statistic ? mean[i] : outer(weights_[i], weights_[i] - mean[i], i);
      }
    }
  }
  const std::vector<double>& weights() const { return weights_; }

  // Returns the weights of a clone at the end of a round that begins with weights().
  std::vector<double> Local(uint64_t round, uint32_t replica) {
    std::vector<double> local = weights_;
    for (uint32_t h = 0; h < kStepsPerRound; ++h) {
      const std::vector<float> rounded(local.begin(), local.end());
      std::vector<float> gradient(local.size());
      EXPECT_TRUE(toy_.Compute(round * kStepsPerRound + h, replica, rounded,
                               absl::MakeSpan(gradient), [](int64_t) {})
                      .ok());
      for (int64_t v = 0; v < Layout().num_variables(); ++v) {
        const VariableSpec& variable = Layout().variables()[v];
        const int64_t begin = Layout().offset(v);
        for (int64_t i = begin; i < begin + Layout().num_elements(v) && !variable.frozen; ++i) {
          if (variable.kind == VariableKind::kMovingStatistic) {
            local[i] += (1 - variable.moving_average_decay) * (gradient[i] - local[i]);
          } else {
            local[i] -= kRate * variable.learning_rate_multiplier *
                        (gradient[i] + variable.l2_weight * local[i]);
          }
        }
      }
    }
    return local;
  }

 private:
  const uint32_t clones_;
  ToyGradientSource toy_;
  std::vector<double> weights_;
};

// `state` is what TrainedState returns. Only its weights are compared.
void ExpectNear(const std::vector<float>& state, const std::vector<double>& expected) {
  ASSERT_GE(state.size(), expected.size());
  double worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst =
        std::max(worst, std::abs(state[i] - expected[i]) / std::max(1e-2, std::abs(expected[i])));
  }
  EXPECT_LE(worst, 1e-5);
}

TEST(LocalStepsTrainingTest, WithoutAnOuterOptimizerTheWeightsAreTheMeanOfTheClones) {
  for (const uint32_t clones : {1u, 2u}) {
    Reference reference(clones);
    for (uint64_t round = 0; round < kRounds; ++round) {
      reference.Round(round, [](double w, double difference, int64_t) { return w - difference; });
    }
    for (const int tasks : {1, 2}) {
      ExpectNear(TrainedState(clones, Options("", tasks)), reference.weights());
    }
  }
}

// One clone that trains by plain gradient descent reaches the same weights in rounds as in steps.
TEST(LocalStepsTrainingTest, OneCloneTrainsAsWithoutLocalSteps) {
  TestServerOptions plain = Options("local_steps: 1");
  plain.train_config += absl::StrCat(" num_steps: ", kRounds * kStepsPerRound);
  const std::vector<float> steps = TrainedState(1, plain);
  ASSERT_FALSE(steps.empty());
  const int64_t n = Layout().total_elements();
  ExpectNear(TrainedState(1, Options("")), std::vector<double>(steps.begin(), steps.begin() + n));
}

TEST(LocalStepsTrainingTest, NesterovMomentumTakesTheMeanDifferenceAsItsGradient) {
  Reference reference(2);
  std::vector<double> momentum(Layout().total_elements(), 0.0);
  for (uint64_t round = 0; round < kRounds; ++round) {
    reference.Round(round, [&](double w, double difference, int64_t i) {
      momentum[i] = 0.9f * momentum[i] + difference;
      return w - 0.7f * (difference + 0.9f * momentum[i]);
    });
  }
  const std::string outer =
      "outer_optimizer { learning_rate: 0.7 momentum: 0.9 use_nesterov: true }";
  ExpectNear(TrainedState(2, Options(outer)), reference.weights());
  ExpectNear(TrainedState(2, Options(outer, /*tasks=*/2)), reference.weights());
}

TEST(LocalStepsTrainingTest, DelayedNesterovMomentumActsAtTheEndOfEachPeriod) {
  constexpr int kEvery = 3;
  Reference reference(2);
  const size_t n = Layout().total_elements();
  std::vector<double> momentum(n, 0.0), sum(n, 0.0);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const bool ends = (round + 1) % kEvery == 0;
    reference.Round(round, [&](double w, double difference, int64_t i) {
      sum[i] += difference / kEvery;
      if (!ends) return w - 0.7f * difference / kEvery;
      momentum[i] = 0.9f * momentum[i] + sum[i];
      sum[i] = 0.0;
      return w - 0.7f * (0.9f * momentum[i] + difference / kEvery);
    });
  }
  ExpectNear(TrainedState(2, Options("outer_optimizer { learning_rate: 0.7 momentum: 0.9 "
                                     "use_nesterov: true momentum_every: 3 }")),
             reference.weights());
}

constexpr char kAdamAndNesterov[] =
    "optimizer { adam_optimizer { learning_rate { exponential_decay_learning_rate { "
    "initial_learning_rate: 0.05 decay_steps: 5 decay_factor: 0.9 } } } "
    "use_moving_average: true moving_average_decay: 0.5 } "
    "outer_optimizer { learning_rate: 0.7 momentum: 0.9 use_nesterov: true momentum_every: 2 } ";

// What a round contributes must not depend on what its clone did before.
TEST(LocalStepsTrainingTest, KilledServersAndClonesChangeNoBit) {
  const std::vector<float> calm = TrainedState(2, Options(kAdamAndNesterov));
  ASSERT_FALSE(calm.empty());
  EXPECT_EQ(TrainedState(2, Options(kAdamAndNesterov, /*tasks=*/2)), calm);
  for (const bool mapped : {true, false}) {
    TestFolder folder;
    TestServerOptions options =
        Options(absl::StrCat(kAdamAndNesterov, "save_checkpoints_steps: 3"), mapped ? 1 : 2);
    options.mapped = mapped;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    TestClone stays(&server, {.worker_id = 0, .num_replicas = 2});
    StepGate gate;
    {
      // The clone ends within its fourth round.
      const uint64_t position = 3 * kStepsPerRound + 2;
      TestClone leaves(&server,
                       {.worker_id = 1, .num_replicas = 2, .gradient_hook = gate.HookAt(position)});
      ASSERT_TRUE(gate.AwaitReached());
      leaves.Stop();
      server.Kill();
      gate.Open();
      EXPECT_TRUE(absl::IsCancelled(leaves.Join()));
    }
    ASSERT_TRUE(server.Start().ok());
    TestClone returns(&server, {.worker_id = 1, .num_replicas = 2});
    ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 5; }));
    server.Kill();
    ASSERT_TRUE(server.Start().ok());
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_TRUE(stays.Join().ok());
    EXPECT_TRUE(returns.Join().ok());
    EXPECT_EQ(server.Checkpointed(kRounds), calm) << "mapped " << mapped;
  }
}

TEST(LocalStepsTrainingTest, AnotherCloneTakesOverTheReplica) {
  const std::vector<float> calm = TrainedState(2, Options(kAdamAndNesterov));
  ASSERT_FALSE(calm.empty());
  EXPECT_EQ(StateAfterTakeover(Options(kAdamAndNesterov), 9), calm);
}

// The clones' gradient leads to a fixed point, so the weights end near it whatever the order of the
// pushes.
TEST(LocalStepsTrainingTest, AsynchronousRoundsWithDelayedNesterovMomentumConverge) {
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    TestServerOptions options = Options(
        "num_steps: 120 outer_optimizer { learning_rate: 0.7 momentum: 0.5 use_nesterov: true "
        "momentum_every: 3 }",
        tasks);
    options.sync = false;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    std::vector<absl::Status> clones;
    std::thread training([&] { clones = TrainWithClones(&server, 3); });
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    training.join();
    for (const absl::Status& clone : clones) EXPECT_TRUE(clone.ok()) << clone;
    const std::vector<float> state = server.Checkpointed(120);
    ASSERT_FALSE(state.empty());
    // A long run in double without momentum.
    Reference reference(3);
    for (uint64_t round = 0; round < 60; ++round) {
      reference.Round(round, [](double w, double difference, int64_t) { return w - difference; });
    }
    double distance = 0.0;
    double moved = 0.0;
    const Reference start(3);
    for (size_t i = 0; i < reference.weights().size(); ++i) {
      distance += std::pow(state[i] - reference.weights()[i], 2);
      moved += std::pow(start.weights()[i] - reference.weights()[i], 2);
    }
    EXPECT_LT(distance, 0.05 * moved) << tasks << " tasks";
  }
}

// Here a statistic changes by less in a round than bfloat16 can show of its value.
TEST(LocalStepsTrainingTest, StatisticsMoveOnWithRoundedContributions) {
  std::vector<VariableSpec> variables = MakeToyLayout().variables();
  variables[1].moving_average_decay = 0.9999f;
  variables[1].initializer = {Initializer::Kind::kConstant, 1.0f, 0.0f};
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  TestServerOptions options;
  options.train_config = absl::StrCat(kRoundsOfFour, "num_steps: 40");
  options.layout = &layout;
  TestCloneOptions rounded;
  rounded.gradient_codec = &Bfloat16Codec();
  const std::vector<float> exact = TrainedState(1, options);
  const std::vector<float> state = TrainedState(1, options, rounded);
  ASSERT_FALSE(exact.empty());
  ASSERT_EQ(state.size(), exact.size());
  for (int64_t i = layout.offset(1); i < layout.offset(1) + layout.num_elements(1); ++i) {
    EXPECT_NEAR(state[i] - 1, exact[i] - 1, 0.02 * std::abs(exact[i] - 1)) << i;
    EXPECT_GT(std::abs(exact[i] - 1), 1e-3) << i;
  }
}

// A round that began before another clone's was applied must not undo it.
TEST(LocalStepsTrainingTest, AsynchronousRoundsAddToTheStatisticsOfOthers) {
  TestFolder folder;
  TestServerOptions options = Options("num_steps: 2");
  options.sync = false;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  std::atomic<int> computing = 0;
  absl::Notification over;
  const auto compute_together = [&](uint64_t position, uint32_t, GradientResult*,
                                    absl::Span<float>) {
    if (position == 0) ++computing;
    while (computing < 2) std::this_thread::yield();
    if (position >= kStepsPerRound) over.WaitForNotification();  // the other clone's round counts
  };
  std::vector<std::unique_ptr<TestClone>> clones;
  for (const uint32_t id : {0u, 1u}) {
    clones.push_back(std::make_unique<TestClone>(
        &server,
        TestCloneOptions{.worker_id = id, .num_replicas = 2, .gradient_hook = compute_together}));
  }
  EXPECT_TRUE(server.WaitAndClose().ok());
  over.Notify();
  for (const auto& clone : clones) EXPECT_TRUE(clone->Join().ok());
  const std::vector<float> state = server.Checkpointed(2);
  ASSERT_FALSE(state.empty());
  // What each clone gives is its value after the round, because the statistic begins with 0.
  Reference reference(2);
  const std::vector<double> one = reference.Local(0, 0);
  const std::vector<double> other = reference.Local(0, 1);
  const double decay = std::pow(Layout().variables()[1].moving_average_decay, kStepsPerRound);
  for (int64_t i = Layout().offset(1); i < Layout().offset(1) + Layout().num_elements(1); ++i) {
    const double error = std::min(std::abs(state[i] - (decay * one[i] + other[i])),
                                  std::abs(state[i] - (decay * other[i] + one[i])));
    EXPECT_LE(error, 1e-5) << i;
    EXPECT_GT(std::min(std::abs(one[i]), std::abs(other[i])), 1e-3) << i;
  }
}

// Clones and server count samples and learning rates in mini-batches.
TEST(LocalStepsTrainingTest, ReportsCountMiniBatches) {
  TestFolder folder;
  TestServer server(folder, Options(kAdamAndNesterov));
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(clone.Join().ok());
  const std::vector<CloneReport> reports = clone.reports();
  ASSERT_EQ(reports.size(), kRounds);
  EXPECT_EQ(reports.back().step, kRounds);
  EXPECT_EQ(reports.back().images, kRounds * kStepsPerRound * ToyGradientSource::kGlobalBatch);
  EXPECT_NEAR(server.job().LearningRateAt(5), 0.05 * std::pow(0.9, 4), 1e-8);
}

// Three epochs of 100 images are 2.4 rounds of 4 batches of 31.
TEST(LocalStepsTrainingTest, EpochsCountTheSamplesOfAllMiniBatches) {
  TestFolder folder;
  TestServerOptions options = Options("");
  options.num_epochs = 3;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(clone.Join().ok());
  EXPECT_FALSE(server.Checkpointed(3).empty());
  EXPECT_TRUE(server.Checkpointed(4).empty());
}

TEST(LocalStepsTrainingTest, ANonFiniteMiniBatchNamesTheVariableOfItsGradient) {
  TestFolder folder;
  TestServer server(folder, Options(""));
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {.gradient_hook = [](uint64_t position, uint32_t, GradientResult* result,
                                                absl::Span<float> gradient) {
    if (position != 6) return;
    result->loss = NAN;
    gradient[0] = INFINITY;
  }});
  const absl::Status end = server.WaitAndClose();
  EXPECT_THAT(end.message(), ::testing::HasSubstr("step 2"));
  EXPECT_THAT(end.message(), ::testing::HasSubstr("non-finite loss"));
  EXPECT_THAT(end.message(), ::testing::HasSubstr("toy/conv/weights"));
  EXPECT_FALSE(clone.Join().ok());
}

}  // namespace
}  // namespace pushpull
