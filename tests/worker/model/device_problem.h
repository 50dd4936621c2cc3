// A network with variables and batches, and its steps, for tests of device runners.
#ifndef PUSHPULL_TESTS_WORKER_MODEL_DEVICE_PROBLEM_H_
#define PUSHPULL_TESTS_WORKER_MODEL_DEVICE_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testkit/model/test_network.h"
#include "tests/testkit/model/tiny_model.h"
#include "worker/model/device_runner.h"

namespace pushpull {

// A network's configuration, its variables, and a batch of up to kMaxBatch samples, each with one
// or more objects.
class Problem {
 public:
  static constexpr int64_t kMaxBatch = 3;

  explicit Problem(const config::TrainEvalPipelineConfig& config)
      : Problem(BuildNetworkSpec(config.model()), BuildVariableLayout(config)) {}

  Problem(NetworkSpec network_spec, VariableLayout variable_layout)
      : spec(std::move(network_spec)),
        layout(std::move(variable_layout)),
        variables(layout.total_elements()),
        batch_(spec.input, std::max(spec.num_classes, 1), kMaxBatch) {
    InitializeVariables(layout, 7, absl::MakeSpan(variables));
    SetObjects(2);
  }

  // Gives sample s s * more + 1 objects.
  void SetObjects(int more) {
    CounterRandom random(5, 3);
    objects_.assign(kMaxBatch, {});
    for (int64_t s = 0; s < kMaxBatch; ++s) {
      for (int64_t i = 0; i <= s * more; ++i) {
        const float y = 0.5f * random.NextFloat(), x = 0.5f * random.NextFloat();
        objects_[s].push_back({{y, x, y + 0.4f, x + 0.3f}, static_cast<int32_t>(i % 2), 1.0f});
      }
    }
    spans_.assign(objects_.begin(), objects_.end());
  }

  ImageBatch<float> Batch(int64_t samples) const {
    ImageBatch<float> batch = batch_.part(0, samples, spec.input);
    batch.objects = spans_.data();
    return batch;
  }

  const NetworkSpec spec;
  const VariableLayout layout;
  std::vector<float> variables;

 private:
  TestBatch<float> batch_;
  std::vector<std::vector<LabeledBox>> objects_;
  std::vector<absl::Span<const LabeledBox>> spans_;
};

// A tiny detector, or a tiny classifier with dropout.
inline Problem TinyProblem(bool is_detector) {
  const NetworkSpec network =
      is_detector ? MakeTinyDetector() : MakeTinyNetwork({.keep_classes = 0.75f});
  Problem problem(network, *VariableLayout::Create(network.variables));
  // Random values instead of the special values 0 and 1 of initial biases and batch norms.
  CounterRandom random(3, 1);
  for (float& value : problem.variables) value += 0.2f * random.NextFloat();
  return problem;
}

struct Outcome {
  StepResult result;
  std::vector<float> gradient;
  std::vector<int64_t> firsts;
};

inline Outcome Step(NetworkRunner* runner, const Problem& problem, int64_t samples,
                    uint64_t seed = 1) {
  Outcome outcome;
  outcome.gradient.assign(problem.variables.size(), -12345.0f);
  std::vector<std::vector<float>> tails;
  const auto result = runner->ForwardBackward(problem.variables, problem.Batch(samples), seed,
                                              absl::MakeSpan(outcome.gradient), [&](int64_t first) {
                                                outcome.firsts.push_back(first);
                                                tails.emplace_back(outcome.gradient.begin() + first,
                                                                   outcome.gradient.end());
                                              });
  EXPECT_TRUE(result.ok()) << result.status();
  if (result.ok()) outcome.result = *result;
  for (size_t i = 0; i < tails.size(); ++i) {
    EXPECT_TRUE(
        std::equal(tails[i].begin(), tails[i].end(), outcome.gradient.begin() + outcome.firsts[i]))
        << "the tail from " << outcome.firsts[i] << " changed after it was announced";
  }
  return outcome;
}

inline void ExpectSame(const Outcome& expected, const Outcome& actual) {
  EXPECT_EQ(expected.gradient, actual.gradient);
  EXPECT_EQ(expected.result.loss, actual.result.loss);
  EXPECT_EQ(expected.result.correct_top5, actual.result.correct_top5);
  EXPECT_EQ(expected.result.detection.matched_anchors, actual.result.detection.matched_anchors);
  EXPECT_EQ(expected.result.samples, actual.result.samples);
}

inline std::vector<float> Outputs(const NetworkRunner& runner, int64_t samples) {
  std::vector<float> values;
  const std::vector<int> nodes = OutputNodes(runner.spec());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const float* const output = runner.outputs()[i];
    const int64_t size = samples * runner.spec().nodes[nodes[i]].shape.num_elements();
    values.insert(values.end(), output, output + size);
  }
  return values;
}

// Options that make a step of many small pieces.
inline DeviceRunnerOptions SmallPieces() {
  DeviceRunnerOptions options;
  options.runner.max_batch = Problem::kMaxBatch;
  options.piece_bytes = 1024;
  return options;
}

inline std::unique_ptr<NetworkRunner> OnDevice(const Problem& problem, Device* device,
                                               const DeviceRunnerOptions& options) {
  auto runner = MakeDeviceRunner(problem.spec, problem.layout, device, options);
  CHECK(runner.ok()) << runner.status();
  return std::move(runner).value();
}

inline std::unique_ptr<NetworkRunner> OnHost(const Problem& problem, Operators<float>* operators) {
  auto runner = MakeHostRunner(problem.spec, problem.layout, operators, {Problem::kMaxBatch, true});
  CHECK(runner.ok()) << runner.status();
  return std::move(runner).value();
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_MODEL_DEVICE_PROBLEM_H_
