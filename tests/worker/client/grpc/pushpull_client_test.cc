// Programs that train by the C interface, against a server over gRPC.
#include "worker/client/pushpull_client.h"

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/wire/gradient_codec.h"
#include "tests/worker/client/grpc/client_testing.h"
#include "worker/sampling/sampler.h"

namespace pushpull {
namespace {

constexpr uint64_t kClientSteps = 20;

TEST(PushpullClientTest, ProgramsTrainToTheSameBitsAsClones) {
  for (const uint32_t clones : {1u, 2u, 3u}) {
    const std::vector<float> expected = TrainedState(clones);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(TrainedByPrograms(clones), expected) << clones << " clones";
  }
}

TEST(PushpullClientTest, TasksChunksAndMemoryChangeNothing) {
  const std::string train_config = "num_steps: 5 gradient_clipping_by_norm: 1.0";
  TestServerOptions server{.train_config = train_config, .large_elements = 700000};
  const std::vector<float> expected = TrainedState(2, server);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(TrainedByPrograms(2, server), expected);
  server.tasks = 2;
  EXPECT_EQ(TrainedByPrograms(2, server), expected) << "two tasks";
  EXPECT_EQ(TrainedByPrograms(2, server,
                              [](PushpullCloneOptions* options) { options->shared_memory = 0; }),
            expected)
      << "two tasks without shared memory";
}

TEST(PushpullClientTest, SendsGradientsAsBfloat16) {
  TestCloneOptions halves;
  halves.gradient_codec = &Bfloat16Codec();
  const std::vector<float> expected = TrainedState(2, {}, halves);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(TrainedByPrograms(
                2, {}, [](PushpullCloneOptions* options) { options->gradient_precision = "bf16"; }),
            expected);
}

TEST(PushpullClientTest, SendsGradientsAsInt8AndGetsWeightsAsBfloat16) {
  TestCloneOptions encoded;
  encoded.gradient_codec = &Int8Codec();
  encoded.weight_codec = &Bfloat16Codec();
  const std::vector<float> expected = TrainedState(2, {}, encoded);
  ASSERT_FALSE(expected.empty());
  const auto choose = [](PushpullCloneOptions* options) {
    options->gradient_precision = "int8";
    options->weight_precision = "bf16";
  };
  EXPECT_EQ(TrainedByPrograms(2, {}, choose), expected);
}

TEST(PushpullClientTest, NamesThePrecisionsOfTheCodecs) {
  EXPECT_EQ(pushpull_gradient_precisions(), GradientCodecFlags());
  EXPECT_EQ(pushpull_weight_precisions(), WeightCodecFlags());
}

TEST(PushpullClientTest, TrainsAsynchronously) {
  const std::vector<float> expected = TrainedState(1, {.sync = false});
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(TrainedByPrograms(1, {.sync = false}), expected);
  EXPECT_FALSE(TrainedByPrograms(3, {.sync = false}).empty());
}

// Minimises 1/2 (w - 1)^2 for each element of the last variable, which momentum's formula predicts.
TEST(PushpullClientTest, TheResultIsThatOfTheOptimizersFormula) {
  ServedJob job;
  job.Start();
  const PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  const ClonePtr clone(pushpull_clone_new(&options));
  ASSERT_EQ(ConnectAndStart(clone.get(), job.layout()), PUSHPULL_OK)
      << pushpull_clone_error(clone.get());
  const int64_t size = job.layout().num_elements(3);
  const int64_t at = pushpull_clone_offset(clone.get(), 3);
  ASSERT_EQ(at, job.layout().offset(3));
  ASSERT_EQ(pushpull_clone_total_elements(clone.get()), job.layout().total_elements());
  EXPECT_EQ(pushpull_clone_offset(clone.get(), 4), -1);
  EXPECT_EQ(pushpull_clone_offset(clone.get(), -1), -1);
  double w = 0.0;
  double velocity = 0.0;
  uint64_t steps = 0;
  const auto compute = [&](PushpullClone* self, const PushpullBatch& batch) {
    EXPECT_EQ(batch.position, steps);
    EXPECT_EQ(batch.version, steps);
    EXPECT_EQ(batch.replica, 0);
    ++steps;
    double loss = 0.0;
    for (int64_t i = at; i < at + size; ++i) {
      EXPECT_NEAR(batch.weights[i], w, 1e-6);
      batch.gradient[i] = batch.weights[i] - 1.0f;
      loss += 0.5 * batch.gradient[i] * batch.gradient[i];
    }
    velocity = 0.9 * velocity + (w - 1.0);
    w -= 0.1 * velocity;
    EXPECT_EQ(pushpull_clone_finish(self, 31, loss, nullptr, 0), PUSHPULL_OK);
  };
  PushpullBatch last;
  std::thread end([&job] { EXPECT_EQ(job.WaitAndClose(), absl::OkStatus()); });
  EXPECT_EQ(TrainToTheEnd(clone.get(), compute, &last), PUSHPULL_OK)
      << pushpull_clone_error(clone.get());
  end.join();
  EXPECT_EQ(steps, kClientSteps);
  EXPECT_EQ(last.over, 1);
  EXPECT_EQ(last.version, kClientSteps);
  ASSERT_NE(last.weights, nullptr);
  EXPECT_EQ(last.gradient, nullptr);
  EXPECT_NEAR(last.weights[at], w, 1e-6);
  PushpullBatch again;
  EXPECT_EQ(pushpull_clone_next(clone.get(), 0, &again), PUSHPULL_OK)
      << "the end can be asked for again";
  EXPECT_EQ(again.over, 1);
}

TEST(PushpullClientTest, TellsTheJob) {
  ServedJob job({.train_config = "seed: 7"});
  job.Start();
  const PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  const ClonePtr clone(pushpull_clone_new(&options));
  PushpullJob told;
  pushpull_clone_job(clone.get(), &told);
  EXPECT_EQ(told.batch_size, 0) << "not connected yet";
  EXPECT_EQ(pushpull_clone_total_elements(clone.get()), -1);
  ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK);
  pushpull_clone_job(clone.get(), &told);
  EXPECT_EQ(told.sync, 1);
  EXPECT_EQ(told.tasks, 1);
  EXPECT_EQ(told.seed, 7);
  EXPECT_EQ(told.batch_size, 31);
  EXPECT_EQ(told.num_steps, kClientSteps);
  EXPECT_EQ(told.version, 0);
  EXPECT_EQ(told.awaits_variables, 0);
  EXPECT_EQ(told.external_name, nullptr) << "the server knows the model";
  EXPECT_NE(std::string(told.pipeline_config).find("momentum"), std::string::npos);
}

TEST(PushpullClientTest, ReportsProgressAndMetrics) {
  ServedJob job;
  job.Start();
  const PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  const ClonePtr clone(pushpull_clone_new(&options));
  ASSERT_EQ(ConnectAndStart(clone.get(), job.layout()), PUSHPULL_OK);
  PushpullProgress progress;
  char waiting_for[4] = "xxx";
  pushpull_clone_progress(clone.get(), &progress, waiting_for, sizeof(waiting_for));
  EXPECT_EQ(progress.step, 0);
  EXPECT_EQ(std::string(waiting_for), "");
  const auto compute = [&](PushpullClone* self, const PushpullBatch& batch) {
    const PushpullMetric metrics[] = {{"accuracy", 0.5}};
    EXPECT_EQ(
        pushpull_clone_finish(self, 31, 2.0 + static_cast<double>(batch.position), metrics, 1),
        PUSHPULL_OK);
  };
  std::thread end([&job] { EXPECT_EQ(job.WaitAndClose(), absl::OkStatus()); });
  EXPECT_EQ(TrainToTheEnd(clone.get(), compute), PUSHPULL_OK);
  end.join();
  pushpull_clone_progress(clone.get(), &progress, nullptr, 0);
  EXPECT_EQ(progress.step, kClientSteps);
  EXPECT_EQ(progress.num_steps, kClientSteps);
  EXPECT_EQ(progress.samples, 31 * kClientSteps);
  EXPECT_EQ(progress.loss, 2.0 + kClientSteps - 1);
}

TEST(PushpullClientTest, AProcessMayHaveSeveralClones) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.num_replicas = 2;
  const ClonePtr first(pushpull_clone_new(&options));
  options.worker_id = 1;
  const ClonePtr second(pushpull_clone_new(&options));
  ASSERT_EQ(ConnectAndStart(first.get(), job.layout()), PUSHPULL_OK);
  ASSERT_EQ(ConnectAndStart(second.get(), job.layout()), PUSHPULL_OK);
  std::thread end([&job] { EXPECT_EQ(job.WaitAndClose(), absl::OkStatus()); });
  // One thread serves both in turn.
  const ComputeFn compute = ToyProgram(job.layout(), 2);
  std::vector<PushpullClone*> training = {first.get(), second.get()};
  const Deadline deadline(absl::Minutes(1));
  while (!training.empty() && !deadline.HasPassed()) {
    PushpullClone* const clone = training.front();
    training.erase(training.begin());
    PushpullBatch batch;
    const int code = pushpull_clone_next(clone, 1, &batch);
    if (code == PUSHPULL_OK && batch.over != 0) continue;
    training.push_back(clone);
    if (code == PUSHPULL_OK) compute(clone, batch);
    EXPECT_TRUE(code == PUSHPULL_OK || code == PUSHPULL_DEADLINE_EXCEEDED) << code;
  }
  end.join();
  EXPECT_TRUE(training.empty());
  EXPECT_EQ(job.server().Checkpointed(kClientSteps), TrainedState(2));
}

TEST(PushpullClientTest, ASampledBatchIsThatOfTheSampler) {
  for (const bool sync : {true, false}) {
    const PushpullSampling sampling = {sync ? 1 : 0, 1, 5, 100, 31, 3, 0, 0};
    Sampler sampler({.mode = sync ? SamplerOptions::Mode::kSync : SamplerOptions::Mode::kAsync,
                     .seed = 5,
                     .num_examples = 100,
                     .batch_size = 31,
                     .num_replicas = 3});
    for (uint64_t position = 0; position < 10; ++position) {
      for (uint32_t replica = 0; replica < 3; ++replica) {
        std::vector<Sample> expected;
        sampler.GetBatch(static_cast<int64_t>(position), static_cast<int>(replica), &expected);
        std::vector<int64_t> indices(40, -1);
        ASSERT_EQ(pushpull_sample_batch(&sampling, position, replica, indices.data(), 40),
                  static_cast<int64_t>(expected.size()));
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(indices[i], expected[i].index);
      }
    }
    int64_t one = -1;
    EXPECT_EQ(pushpull_sample_batch(&sampling, 0, 0, &one, 1), sync ? 10 : 31)
        << "fills in no more than the capacity";
  }
}

TEST(PushpullClientTest, ASampledBatchHasLimits) {
  const PushpullSampling good = {1, 1, 5, 100, 31, 3, 0, 0};
  const auto sample = [](PushpullSampling sampling, uint64_t position, uint32_t replica) {
    return pushpull_sample_batch(&sampling, position, replica, nullptr, 0);
  };
  EXPECT_EQ(sample(good, 0, 2), 11);
  EXPECT_EQ(sample(good, 0, 3), -1) << "there is no such replica";
  EXPECT_EQ(sample(good, uint64_t{1} << 62, 0), -1) << "the position overflows";
  PushpullSampling bad = good;
  bad.num_examples = 0;
  EXPECT_EQ(sample(bad, 0, 0), -1);
  bad = good;
  bad.batch_size = 2;
  EXPECT_EQ(sample(bad, 0, 0), -1) << "less than a sample per replica";
  bad.sync = 0;
  EXPECT_EQ(sample(bad, 0, 0), 2) << "each replica has batches of its own";
  bad.num_replicas = 0;
  EXPECT_EQ(sample(bad, 0, 0), -1);
  EXPECT_EQ(pushpull_sample_batch(nullptr, 0, 0, nullptr, 0), -1);
  EXPECT_EQ(pushpull_sample_batch(&good, 0, 0, nullptr, 5), -1);
  EXPECT_EQ(pushpull_client_version(), PUSHPULL_CLIENT_VERSION);
}

}  // namespace
}  // namespace pushpull
