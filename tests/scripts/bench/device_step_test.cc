#include "scripts/bench/step/device_step.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "scripts/bench/step/first_losses.h"
#include "scripts/bench/step/operator_table.h"
#include "scripts/bench/step/torch_child.h"
#include "tests/testkit/kernels/deferred_device.h"
#include "tests/testkit/test_folder.h"
#include "worker/model/host_runner.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

BenchNetwork SmallNetwork(const std::string& model) {
  absl::StatusOr<BenchNetwork> network =
      MakeBenchNetwork({model, model == "mobilenet_v2" ? 64 : 75, 5, 0.25});
  CHECK(network.status().ok()) << network.status();
  return *std::move(network);
}

// The convolutions of all kinds in a network.
int CountConvolutions(const NetworkSpec& network) {
  return static_cast<int>(
      std::count_if(network.nodes.begin(), network.nodes.end(), [](const Node& node) {
        return std::holds_alternative<op::Convolution>(node.op) ||
               std::holds_alternative<op::DepthwiseConvolution>(node.op);
      }));
}

class DeviceStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  DeviceStepTest() : network_(SmallNetwork(GetParam())), batch_(MakeBenchBatch(network_.spec, 4)) {}

  std::unique_ptr<DeviceStep> MakeStep() {
    absl::StatusOr<std::unique_ptr<DeviceStep>> step =
        DeviceStep::Create(network_, batch_, Precision::kFloat, &device_);
    CHECK(step.status().ok()) << step.status();
    CHECK((*step)->SetVariables(InitialVariables(network_)).ok());
    return *std::move(step);
  }

  DeferredDevice device_;
  const BenchNetwork network_;
  const BenchBatch batch_;
};

INSTANTIATE_TEST_SUITE_P(Networks, DeviceStepTest,
                         ::testing::Values("mobilenet_v2", "ssd_mobilenet_v1", "ssd_mobilenet_v2"));

TEST_P(DeviceStepTest, MatchesTheStepOfTheRunner) {
  const std::vector<float> variables = InitialVariables(network_);
  // The device uses the reference operators too.
  const std::unique_ptr<Operators<float>> operators = MakeReferenceOperators<float>();
  absl::StatusOr<std::unique_ptr<NetworkRunner>> runner =
      MakeHostRunner(network_.spec, network_.layout, operators.get(), {batch_.samples});
  ASSERT_TRUE(runner.ok()) << runner.status();
  std::vector<absl::Span<const LabeledBox>> objects;
  for (int64_t s = 0; s < batch_.samples; ++s) {
    objects.push_back(
        absl::MakeConstSpan(batch_.objects)
            .subspan(batch_.first_object[s], batch_.first_object[s + 1] - batch_.first_object[s]));
  }
  const ImageBatch<float> images{batch_.images.data(), batch_.labels.data(), batch_.samples,
                                 objects.data()};
  std::vector<float> expected(variables.size()), gradient(variables.size());
  const absl::StatusOr<StepResult> result =
      (*runner)->ForwardBackward(variables, images, 0, absl::MakeSpan(expected), [](int64_t) {});
  ASSERT_TRUE(result.ok()) << result.status();

  const std::unique_ptr<DeviceStep> step = MakeStep();
  const absl::StatusOr<double> loss = step->Step(absl::MakeSpan(gradient));
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(*loss, result->loss);
  EXPECT_EQ(gradient, expected);

  // A step must not change anything that the next step reads.
  const absl::StatusOr<double> milliseconds = step->Measure(2);
  ASSERT_TRUE(milliseconds.ok()) << milliseconds.status();
  EXPECT_GT(*milliseconds, 2.0 * static_cast<double>(CountConvolutions(network_.spec)));
  std::vector<float> again(variables.size());
  EXPECT_EQ(*step->Step(absl::MakeSpan(again)), *loss);
  EXPECT_EQ(again, gradient);
}

TEST_P(DeviceStepTest, ProfilesEveryOperator) {
  const std::unique_ptr<DeviceStep> step = MakeStep();
  const absl::StatusOr<std::vector<OperatorTime>> operators = step->Profile(3);
  ASSERT_TRUE(operators.ok()) << operators.status();
  int convolutions = 0, convolutions_backward = 0;
  for (const OperatorTime& one : *operators) {
    const std::string name = one.record.name;
    if (name == "convolution" || name == "depthwise") ++convolutions;
    if (name == "convolution_backward" || name == "depthwise_backward") ++convolutions_backward;
    EXPECT_EQ(one.milliseconds, 1.0) << name;
  }
  const int expected = CountConvolutions(network_.spec);
  EXPECT_EQ(convolutions, expected);
  EXPECT_EQ(convolutions_backward, expected);
}

// The comparison starts from the file that the benchmark writes and has to reach the same losses.
// Here it is PyTorch on the CPU.
TEST_P(DeviceStepTest, FirstLossesMatchPytorch) {
  if (GetParam() == "ssd_mobilenet_v2") GTEST_SKIP() << "gpu_step_torch_test.py covers it";
  constexpr int kSteps = 4;
  // With few samples per batch norm, rounding errors grow fast. Steps this small keep both sides
  // together.
  const Descent descent{1e-6, 0.9};
  const std::string script = std::string(PUSHPULL_SOURCE_DIR) + "/scripts/bench/gpu_step_torch.py";
  const auto torch =
      TorchChild::Start({"/usr/bin/python3", script, "--device=cpu", "--width=0.25"});
  if (!torch.ok() || !(*torch)->Ask("info", absl::Minutes(1)).ok()) {
    GTEST_SKIP() << "/usr/bin/python3 has no PyTorch";
  }
  const std::unique_ptr<DeviceStep> step = MakeStep();
  const absl::StatusOr<std::vector<double>> losses =
      FirstLosses(network_, descent, kSteps, step.get());
  ASSERT_TRUE(losses.ok()) << losses.status();
  const std::string path = ::testing::TempDir() + "/gpu_step_start_" + GetParam() + "_" +
                           std::to_string(getpid()) + ".bin";
  ASSERT_TRUE(WriteStart(network_, descent, batch_, path).ok());
  const absl::StatusOr<nlohmann::json> answer = (*torch)->Ask(
      "losses " + GetParam() + " " + std::to_string(kSteps) + " " + path, absl::Minutes(2));
  std::remove(path.c_str());
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto theirs = (*answer)["losses"].get<std::vector<double>>();
  ASSERT_EQ(theirs.size(), losses->size());
  EXPECT_NEAR(losses->front(), theirs.front(), 1e-4 * theirs.front());
  for (int i = 1; i < kSteps; ++i) {
    const double decline = theirs[0] - theirs[i];
    EXPECT_GT(decline, 0.0) << "step " << i;
    EXPECT_NEAR((*losses)[0] - (*losses)[i], decline, 0.1 * decline) << "step " << i;
  }
}

TEST(BenchNetworkTest, NamesUnknownNetworks) {
  const absl::Status status = MakeBenchNetwork({"resnet", 224, 10, 1.0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"resnet\""));
}

TEST(BenchNetworkTest, HasTheNetworkAndBatchOfAConfig) {
  const TestFolder folder;
  const std::string path = folder.Write("pipeline.config", R"(
    model {
      classifier {
        num_classes: 7
        image_resizer { fixed_shape_resizer { height: 48 width: 64 } }
        feature_extractor { type: "mobilenet_v2" depth_multiplier: 0.25 }
      }
    }
    train_config {
      batch_size: 12
      num_steps: 1
      optimizer {
        momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.1 } } }
      }
    }
    train_input_reader { synthetic_input_reader { num_examples: 12 num_classes: 7 } }
    eval_input_reader { synthetic_input_reader { num_examples: 12 num_classes: 7 } }
  )");
  const absl::StatusOr<BenchNetwork> network = LoadBenchNetwork(path);
  ASSERT_TRUE(network.status().ok()) << network.status();
  EXPECT_EQ(network->batch_size, 12);
  EXPECT_EQ(network->spec.num_classes, 7);
  EXPECT_EQ(network->spec.input, (FeatureShape{48, 64, 3}));
  EXPECT_GT(network->layout.total_elements(), 0);

  const absl::Status missing = LoadBenchNetwork(folder.path() + "/other.config").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("other.config"));
}

TEST(DeviceStepMemory, ReportsABatchThatDoesNotFit) {
  DeferredDevice device(int64_t{1} << 20);
  const BenchNetwork network = SmallNetwork("mobilenet_v2");
  EXPECT_EQ(DeviceStep::Create(network, MakeBenchBatch(network.spec, 8), Precision::kFloat, &device)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

OperatorTime Made(const char* name, int64_t channels, double bytes, double milliseconds) {
  OperatorRecord record;
  record.name = name;
  record.in = record.out = {1, 4, 4, channels};
  record.bytes = bytes;
  record.flops = 3e9;
  return {record, milliseconds};
}

TEST(OperatorTable, AddsUpAndSorts) {
  const std::vector<OperatorTime> operators = {
      Made("quick", 8, 1e9, 1.0), Made("slow", 8, 1e9, 2.0), Made("slow", 16, 3e9, 4.0),
      Made("quick", 8, 1e9, 1.0)};
  EXPECT_EQ(FormatOperatorTable(operators, TableRows::kKind, 2e12),
            "  operator      calls        ms  TFLOP/s     GB/s  of floor   share\n"
            "  slow              2    6.0000     1.00      667       33%   75.0%\n"
            "  quick             2    2.0000     3.00     1000       50%   25.0%\n"
            "  all operators     4    8.0000     1.50      750       38%  100.0%\n");
  const std::string layers = FormatOperatorTable(operators, TableRows::kLayer, 2e12);
  EXPECT_EQ(std::count(layers.begin(), layers.end(), '\n'), 5);
  EXPECT_LT(layers.find("4x4  x16"), layers.find("4x4  x8"));
  EXPECT_THAT(FormatOperatorTable({Made("none", 8, 1e9, 0.0)}, TableRows::kKind, 1e12),
              HasSubstr("0.0%"));
}

}  // namespace
}  // namespace pushpull
