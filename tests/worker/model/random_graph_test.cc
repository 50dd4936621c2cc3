// Random networks: gradients against central differences, and the fast and the emulated CUDA
// operators against the reference.
#include "tests/testkit/model/random_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/reference_operators.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/testkit/full_run.h"
#include "tests/testkit/model/test_network.h"
#include "tests/worker/model/device_problem.h"
#include "tests/worker/model/norms.h"

namespace pushpull {
namespace {

constexpr int64_t kGraphSamples = 3;
constexpr uint64_t kDropoutSeed = 5;
constexpr uint64_t kGraphs = 500;

template <typename T>
TestNetwork<T> MakeNetwork(uint64_t seed, std::unique_ptr<Operators<T>> operators) {
  const NetworkSpec spec = RandomGraph(seed).Build();
  EXPECT_EQ(CheckNetwork(spec), absl::OkStatus()) << "seed " << seed;
  TestNetwork<T> network(spec, *VariableLayout::Create(spec.variables), std::move(operators),
                         kGraphSamples);
  // Random values instead of the special values 0 and 1 of initial biases and batch norms.
  CounterRandom random(seed, 3);
  for (T& value : network.variables) value += T(0.2f * random.NextFloat());
  return network;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The derivative of the loss along `direction`, from two steps apart.
double Difference(TestNetwork<double>* network, const TestBatch<double>& batch,
                  const std::vector<double>& direction, double step) {
  const std::vector<double> variables = network->variables;
  double losses[2];
  for (const int side : {0, 1}) {
    for (size_t i = 0; i < variables.size(); ++i) {
      network->variables[i] = variables[i] + (side == 0 ? -step : step) * direction[i];
    }
    losses[side] = network->Step(batch.view(), kDropoutSeed).loss;
  }
  network->variables = variables;
  return (losses[1] - losses[0]) / (2 * step);
}

TEST(RandomGraphTest, GradientsMatchCentralDifferences) {
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    TestNetwork<double> network = MakeNetwork(seed, MakeReferenceOperators<double>());
    const TestBatch<double> batch(network.spec.input, RandomGraph::kClasses, kGraphSamples);
    network.Step(batch.view(), kDropoutSeed);
    const std::vector<double> gradient = network.gradient;
    for (int64_t v = 0; v < network.layout.num_variables(); ++v) {
      const VariableSpec& variable = network.layout.variables()[v];
      if (variable.kind != VariableKind::kTrainable) continue;
      // A random direction in the space of this variable.
      std::vector<double> direction(gradient.size(), 0.0);
      CounterRandom random(seed, 100 + v);
      double scale = 1e-3;
      for (int64_t k = 0; k < network.layout.num_elements(v); ++k) {
        const int64_t i = network.layout.offset(v) + k;
        direction[i] = 2.0 * random.NextFloat() - 1.0;
        scale = std::max(scale, std::abs(gradient[i]));
      }
      // A step across a kink gives a wrong difference, but hardly two steps of different lengths.
      const double expected = Dot(gradient, direction);
      double error = 1.0;
      for (const double step : {1e-6, 1e-7}) {
        error = std::min(error, std::abs(Difference(&network, batch, direction, step) - expected));
      }
      EXPECT_LT(error, 1e-6 * scale * static_cast<double>(network.layout.num_elements(v)) + 1e-8)
          << variable.name << ", derivative " << expected;
    }
    if (HasFailure()) break;
  }
}

// Batch statistics over few values magnify rounding errors, and the gradient jumps where an error
// moves a value across a kink, so single networks differ more than most.
struct Differences {
  void Add(double difference) { all.push_back(difference); }
  double Quantile(double q) {
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))];
  }
  std::vector<double> all;
};

TEST(RandomGraphTest, FastOperatorsAgreeWithTheReference) {
  ThreadPool pool(2);
  Differences gradients, losses;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    TestNetwork<float> fast = MakeNetwork(seed, MakeFastOperators(&pool));
    TestNetwork<double> reference = MakeNetwork(seed, MakeReferenceOperators<double>());
    reference.variables.assign(fast.variables.begin(), fast.variables.end());
    const TestBatch<float> batch(fast.spec.input, RandomGraph::kClasses, kGraphSamples);
    TestBatch<double> exact(fast.spec.input, RandomGraph::kClasses, kGraphSamples);
    std::copy(batch.images.begin(), batch.images.end(), exact.images.begin());
    const double loss = reference.Step(exact.view(), kDropoutSeed).loss;
    EXPECT_NEAR(fast.Step(batch.view(), kDropoutSeed).loss, loss, 1e-3 * loss) << seed;
    gradients.Add(NormOfDifference(fast.gradient, reference.gradient) / Norm(reference.gradient));
    const auto evaluated = fast.network->Evaluate(fast.variables, batch.view(), 10);
    const auto expected = reference.network->Evaluate(reference.variables, exact.view(), 10);
    ASSERT_TRUE(evaluated.ok() && expected.ok()) << seed;
    losses.Add(std::abs(evaluated->loss - expected->loss) / expected->loss);
  }
  EXPECT_LT(gradients.Quantile(0.9), 1e-4);
  EXPECT_LT(gradients.Quantile(1.0), 5e-2);
  EXPECT_LT(losses.Quantile(1.0), 1e-4);
}

// The emulation takes a tenth of a second per graph, so by default there are fewer graphs.
TEST(RandomGraphTest, EmulatedKernelsAgreeWithTheReference) {
  Differences gradients;
  const uint64_t graphs = IsFullRun() ? kGraphs : 150;
  for (uint64_t seed = 1; seed <= graphs; ++seed) {
    const NetworkSpec spec = RandomGraph(seed).Build();
    Problem problem(spec, *VariableLayout::Create(spec.variables));
    CounterRandom random(seed, 3);
    for (float& value : problem.variables) value += 0.2f * random.NextFloat();
    const auto operators = MakeReferenceOperators<float>();
    emulated_cuda::SetEmulatedMachine({.seed = static_cast<uint32_t>(seed)});
    const auto device = emulated_cuda::OpenDevice({});
    ASSERT_TRUE(device.ok()) << device.status();
    const Outcome expected = Step(OnHost(problem, operators.get()).get(), problem, kGraphSamples);
    const Outcome actual =
        Step(OnDevice(problem, device->get(), SmallPieces()).get(), problem, kGraphSamples);
    EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-3 * expected.result.loss) << seed;
    const std::vector<double> exact(expected.gradient.begin(), expected.gradient.end());
    gradients.Add(NormOfDifference(actual.gradient, exact) / Norm(exact));
  }
  emulated_cuda::SetEmulatedMachine({});
  EXPECT_LT(gradients.Quantile(0.9), 1e-4);
  EXPECT_LT(gradients.Quantile(1.0), 5e-2);
}

}  // namespace
}  // namespace pushpull
