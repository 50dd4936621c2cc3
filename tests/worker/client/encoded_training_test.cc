// Training with int8 gradients and bfloat16 weights, with clones and server in one process.
#include <atomic>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/variable_layout.h"
#include "common/wire/gradient_codec.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kEncodedSteps = 20;

TestCloneOptions Encoded(const GradientCodec& gradients, const GradientCodec& weights) {
  TestCloneOptions options;
  options.gradient_codec = &gradients;
  options.weight_codec = &weights;
  return options;
}

// Returns |a - b| / |b|; infinite if a value is not finite.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::isfinite(difference) ? std::sqrt(difference / size) : INFINITY;
}

TEST(EncodedTrainingTest, SynchronousTrainingGivesTheSameBitsAndNearlyTheSameWeights) {
  const std::vector<float> whole = TrainedState(2);
  ASSERT_FALSE(whole.empty());
  const std::vector<float> int8 =
      TrainedState(2, {.tasks = 2}, Encoded(Int8Codec(), Bfloat16Codec()));
  EXPECT_GT(Distance(int8, whole), 0.0);
  EXPECT_LT(Distance(int8, whole), 0.02);
  EXPECT_EQ(TrainedState(2, {.tasks = 2}, Encoded(Int8Codec(), Bfloat16Codec())), int8);
  // Blocks lie at the same elements for every number of shards.
  EXPECT_EQ(TrainedState(2, {.tasks = 1}, Encoded(Int8Codec(), Bfloat16Codec())), int8);
}

TEST(EncodedTrainingTest, RoundedWeightsAloneGiveTheSameBitsForEveryNumberOfShards) {
  const std::vector<float> one =
      TrainedState(2, {.tasks = 1}, Encoded(Float32Codec(), Bfloat16Codec()));
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(TrainedState(2, {.tasks = 2}, Encoded(Float32Codec(), Bfloat16Codec())), one);
  const std::vector<float> whole = TrainedState(2);
  EXPECT_NE(one, whole);
  EXPECT_LT(Distance(one, whole), 0.02);
}

// A statistic without a decay holds what was pushed last, such as a table of a program. Chunks
// begin at other elements with two tasks, and the variables beside the table still get the same
// bits.
TEST(EncodedTrainingTest, AStatisticThatPushesReplaceIsExactForEveryNumberOfShards) {
  constexpr int64_t kTable = 700;
  std::vector<VariableSpec> variables = MakeToyLayout(/*large_elements=*/40000).variables();
  VariableSpec table;
  table.name = "toy/table";
  table.shape = {kTable};
  table.kind = VariableKind::kMovingStatistic;
  variables.insert(variables.end() - 1, table);  // amid the chunks
  const VariableLayout layout = *VariableLayout::Create(std::move(variables));
  const int64_t first = layout.offset(layout.num_variables() - 2);
  const auto value = [](int64_t i) { return 1000.0f + static_cast<float>(i) / 3.0f; };
  const auto train = [&](int tasks, const GradientCodec& gradients, const GradientCodec& weights) {
    TestCloneOptions clones = Encoded(gradients, weights);
    clones.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*,
                               absl::Span<float> gradient) {
      for (int64_t i = 0; i < kTable; ++i) {
        gradient[first + i] = value(i) + static_cast<float>(position);
      }
    };
    return TrainedState(1, {.layout = &layout, .tasks = tasks}, clones);
  };
  const std::vector<float> whole = train(1, Float32Codec(), Float32Codec());
  ASSERT_FALSE(whole.empty());
  for (const auto& [gradients, weights] :
       {std::pair(&Bfloat16Codec(), &Float32Codec()), std::pair(&Int8Codec(), &Float32Codec()),
        std::pair(&Int8Codec(), &Bfloat16Codec())}) {
    const std::vector<float> one = train(1, *gradients, *weights);
    ASSERT_FALSE(one.empty());
    for (int64_t i = 0; i < kTable; ++i) {
      ASSERT_EQ(one[first + i], value(i) + static_cast<float>(kEncodedSteps - 1))
          << gradients->flag() << " " << weights->flag() << " " << i;
    }
    EXPECT_EQ(train(2, *gradients, *weights), one) << gradients->flag() << " " << weights->flag();
    EXPECT_NE(one, whole) << gradients->flag() << " " << weights->flag();
    EXPECT_LT(Distance(one, whole), 0.02);
  }
}

// The server's answer to a push may be lost after the step was applied. The repeated push still has
// the same bytes, and the residual goes on as if nothing had happened.
TEST(EncodedTrainingTest, LostAnswersToPushesChangeNothing) {
  const std::vector<float> calm = TrainedState(1, {}, Encoded(Int8Codec(), Float32Codec()));
  ASSERT_FALSE(calm.empty());
  TestCloneOptions clones = Encoded(Int8Codec(), Float32Codec());
  std::atomic<int> lost{0};
  clones.hook = [&lost](const MessageInfo& message) {
    CallFault fault;
    const bool chosen = message.sequence % 5 == 3;
    fault.drop_request = chosen && message.method == "PushChunk";
    fault.drop_reply = chosen && message.method == "FinishPush";
    lost += fault.drop_request || fault.drop_reply;
    return fault;
  };
  EXPECT_EQ(TrainedState(1, {}, clones), calm);
  EXPECT_GT(lost.load(), 3);
}

// The commit is a message of its own if there are several tasks.
TEST(EncodedTrainingTest, LostAnswersToCommitsChangeNothing) {
  const TestServerOptions server{.tasks = 2};
  const std::vector<float> calm = TrainedState(1, server, Encoded(Int8Codec(), Float32Codec()));
  ASSERT_FALSE(calm.empty());
  TestCloneOptions clones = Encoded(Int8Codec(), Float32Codec());
  std::atomic<int> commits{0};
  clones.hook = [&commits](const MessageInfo& message) {
    CallFault fault;
    fault.drop_reply = message.method == "Commit" && commits.fetch_add(1) % 3 == 1;
    return fault;
  };
  EXPECT_EQ(TrainedState(1, server, clones), calm);
  EXPECT_GT(commits.load(), 6);
}

TEST(EncodedTrainingTest, ANonFiniteStepLeavesNoTraceInTheResidual) {
  TestCloneOptions clones = Encoded(Int8Codec(), Float32Codec());
  clones.gradient_hook = [](uint64_t position, uint32_t replica, GradientResult*,
                            absl::Span<float> gradient) {
    if (position == 7 && replica == 1) gradient[3] = std::nanf("");
  };
  TestServerOptions server;
  server.train_config = "non_finite_policy: SKIP";
  const std::vector<float> skipped = TrainedState(2, server, clones);
  clones.gradient_codec = &Float32Codec();
  const std::vector<float> whole = TrainedState(2, server, clones);
  ASSERT_FALSE(whole.empty());
  EXPECT_LT(Distance(skipped, whole), 0.02);
}

TEST(EncodedTrainingTest, GoesOnAfterAKilledServer) {
  const std::vector<float> whole = TrainedState(2);
  ASSERT_FALSE(whole.empty());
  TestFolder folder;
  TestServer server(folder, {.tasks = 2, .mapped = true});
  ASSERT_TRUE(server.Start().ok());
  std::vector<std::unique_ptr<TestClone>> clones;
  for (uint32_t k = 0; k < 2; ++k) {
    TestCloneOptions options = Encoded(Int8Codec(), Bfloat16Codec());
    options.worker_id = k;
    options.num_replicas = 2;
    clones.push_back(std::make_unique<TestClone>(&server, options));
  }
  for (const uint64_t at : {4, 11}) {
    ASSERT_TRUE(server.Await([at](const auto& status) { return status.version() >= at; }));
    server.Kill();
    ASSERT_TRUE(server.Start().ok());
  }
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  for (const auto& clone : clones) EXPECT_TRUE(clone->Join().ok());
  EXPECT_LT(Distance(server.Checkpointed(kEncodedSteps), whole), 0.02);
}

TEST(EncodedTrainingTest, AsynchronousTrainingWithTwoTasksEndsNearFloat32) {
  std::vector<float> ends[2];
  for (const bool encoded : {false, true}) {
    TestFolder folder;
    TestServerOptions server_options;
    server_options.train_config = "num_steps: 40";
    server_options.sync = false;
    server_options.tasks = 2;
    TestServer server(folder, server_options);
    ASSERT_TRUE(server.Start().ok());
    // One clone, so that the order of pushes does not blur the comparison.
    TestClone clone(&server, encoded ? Encoded(Int8Codec(), Bfloat16Codec()) : TestCloneOptions());
    EXPECT_TRUE(server.WaitAndClose().ok());
    EXPECT_TRUE(clone.Join().ok());
    ends[encoded] = server.Checkpointed(40);
  }
  EXPECT_GT(Distance(ends[1], ends[0]), 0.0);
  EXPECT_LT(Distance(ends[1], ends[0]), 0.02);
}

}  // namespace
}  // namespace pushpull
