// Compares whole steps with emulated CUDA kernels with the host.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/model/device_problem.h"
#include "tests/worker/model/norms.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> Open(int64_t memory_limit_bytes = 0) {
  GpuOptions options;
  options.memory_limit_bytes = memory_limit_bytes;
  auto device = emulated_cuda::OpenDevice(options);
  CHECK(device.ok()) << device.status();
  return std::move(device).value();
}

void ExpectStepsOfTheHost(const Problem& problem, int64_t samples) {
  const auto operators = MakeReferenceOperators<float>();
  const auto host = OnHost(problem, operators.get());
  const auto device = Open();
  const auto runner = OnDevice(problem, device.get(), SmallPieces());
  const Outcome expected = Step(host.get(), problem, samples);
  const Outcome actual = Step(runner.get(), problem, samples);
  EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-5 * expected.result.loss);
  EXPECT_LT(NormOfDifference(actual.gradient, expected.gradient), 1e-4 * Norm(expected.gradient));
}

class EmulatedDeviceTest : public ::testing::TestWithParam<bool> {
 protected:
  EmulatedDeviceTest()
      : problem_(TinyProblem(GetParam())),
        operators_(MakeReferenceOperators<float>()),
        host_(OnHost(problem_, operators_.get())) {}
  ~EmulatedDeviceTest() override { emulated_cuda::SetEmulatedMachine({}); }

  Problem problem_;
  const std::unique_ptr<Operators<float>> operators_;
  const std::unique_ptr<NetworkRunner> host_;
};

TEST_P(EmulatedDeviceTest, GradientsMatchTheHostAndAreBitIdenticalWhetherRecordedOrNot) {
  const auto device = Open(), other = Open();
  DeviceRunnerOptions options = SmallPieces();
  const auto recording = OnDevice(problem_, device.get(), options);
  options.record_steps = false;
  const auto playing = OnDevice(problem_, other.get(), options);
  for (const int64_t samples : {3, 3, 2, 3}) {
    const Outcome expected = Step(host_.get(), problem_, samples);
    const Outcome actual = Step(recording.get(), problem_, samples);
    EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-5 * expected.result.loss);
    EXPECT_EQ(actual.result.detection.mined_negatives, expected.result.detection.mined_negatives);
    EXPECT_LT(NormOfDifference(actual.gradient, expected.gradient), 1e-4 * Norm(expected.gradient));
    ExpectSame(actual, Step(playing.get(), problem_, samples));
  }
}

// The queues of the device run as late as CUDA's may, or in an order drawn by chance.
TEST_P(EmulatedDeviceTest, StepsMatchTheHostInManyOrdersOfTheQueues) {
  for (const emulated_cuda::EmulatedMachine& machine : std::vector<emulated_cuda::EmulatedMachine>{
           {.defers = true}, {.seed = 1}, {.seed = 2}, {.seed = 3}}) {
    emulated_cuda::SetEmulatedMachine(machine);
    const auto device = Open();
    const auto runner = OnDevice(problem_, device.get(), SmallPieces());
    for (const int64_t samples : {3, 3, 2, 3}) {
      const Outcome expected = Step(host_.get(), problem_, samples);
      for (int64_t first = 0; first < problem_.layout.total_elements();) {
        const int64_t end = std::min<int64_t>(first + 90, problem_.layout.total_elements());
        runner->StageVariables(problem_.variables, first, end);
        first = end;
      }
      const Outcome actual = Step(runner.get(), problem_, samples);
      EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-5 * expected.result.loss);
      EXPECT_LT(NormOfDifference(actual.gradient, expected.gradient),
                1e-4 * Norm(expected.gradient));
    }
  }
}

TEST_P(EmulatedDeviceTest, EvaluationAndOutputsMatchTheHost) {
  const auto device = Open();
  DeviceRunnerOptions options = SmallPieces();
  options.runner.training = false;
  const auto runner = OnDevice(problem_, device.get(), options);
  const auto expected = host_->Evaluate(problem_.variables, problem_.Batch(2), 4);
  const auto actual = runner->Evaluate(problem_.variables, problem_.Batch(2), 4);
  ASSERT_TRUE(expected.ok() && actual.ok()) << actual.status();
  EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * expected->loss);
  const std::vector<float> outputs = Outputs(*host_, 2);
  EXPECT_LT(NormOfDifference(Outputs(*runner, 2), outputs), 1e-5 * Norm(outputs));
}

TEST_P(EmulatedDeviceTest, Bfloat16IsCloseAndRepeatable) {
  const auto device = Open();
  DeviceRunnerOptions options = SmallPieces();
  options.precision = Precision::kBfloat16;
  const auto runner = OnDevice(problem_, device.get(), options);
  const Outcome expected = Step(host_.get(), problem_, 3);
  const Outcome first = Step(runner.get(), problem_, 3);
  EXPECT_NEAR(first.result.loss, expected.result.loss, 0.02 * expected.result.loss);
  EXPECT_LT(NormOfDifference(first.gradient, expected.gradient), 0.1 * Norm(expected.gradient));
  for (int i = 0; i < 2; ++i) ExpectSame(first, Step(runner.get(), problem_, 3));
  // The device returns the outputs as floats.
  ASSERT_TRUE(host_->Infer(problem_.variables, problem_.Batch(2), 4).ok());
  ASSERT_TRUE(runner->Infer(problem_.variables, problem_.Batch(2), 4).ok());
  const std::vector<float> outputs = Outputs(*host_, 2);
  EXPECT_LT(NormOfDifference(Outputs(*runner, 2), outputs), 0.05 * Norm(outputs));
}

TEST_P(EmulatedDeviceTest, AFailureDuringAStepIsReturnedAndStays) {
  const auto device = Open();
  const auto runner = OnDevice(problem_, device.get(), SmallPieces());
  emulated_cuda::EmulatedMachine machine;
  machine.launches_until_failure = 25;
  emulated_cuda::SetEmulatedMachine(machine);
  std::vector<float> gradient(problem_.variables.size());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = runner
                                    ->ForwardBackward(problem_.variables, problem_.Batch(1), 1,
                                                      absl::MakeSpan(gradient), [](int64_t) {})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot use the GPU any more"));
  }
  EXPECT_FALSE(device->status().ok());
}

TEST(EmulatedModelTest, MobilenetV2MatchesTheHost) {
  ExpectStepsOfTheHost(Problem(MakeTestConfig("freeze_batchnorm: true")), 1);
}

TEST(EmulatedModelTest, SsdMobilenetV1MatchesTheHost) {
  ExpectStepsOfTheHost(
      Problem(MakeSsdTestConfig("ssd_mobilenet_v1",
                                "freeze_batchnorm: true num_classes: 3 image_resizer { "
                                "fixed_shape_resizer { height: 33 width: 33 } } "
                                "feature_extractor { depth_multiplier: 0.25 conv_hyperparams { "
                                "batch_norm { train: false } } } ")),
      1);
}

TEST(EmulatedModelTest, NamesABatchThatWouldFit) {
  const Problem problem(MakeTestConfig(""));
  DeviceRunnerOptions options;
  const auto create = [&](int64_t batch) {
    const auto device = Open(int64_t{128} << 20);
    options.runner.max_batch = batch;
    return MakeDeviceRunner(problem.spec, problem.layout, device.get(), options).status();
  };
  const absl::Status status = create(2000);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("a batch of 2000 needs "));
  const size_t at = message.find("0.12 GiB are free; ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t fits = std::stoll(message.substr(at + 19));
  EXPECT_GT(fits, 1);
  EXPECT_TRUE(create(fits).ok()) << fits;
}

// A second device stands for another process that holds memory of the GPU.
TEST(EmulatedModelTest, SaysWhetherMemoryThatIsShortMayBecomeFree) {
  const Problem problem(MakeTestConfig(""));
  DeviceRunnerOptions options;
  const auto create = [&](int64_t batch, int64_t limit) {
    const auto device = Open(limit);
    options.runner.max_batch = batch;
    return MakeDeviceRunner(problem.spec, problem.layout, device.get(), options).status();
  };
  constexpr int64_t kMemory = int64_t{128} << 20;
  emulated_cuda::SetEmulatedMachine({.memory_bytes = kMemory});
  {
    const auto other = Open();
    const auto held = other->Allocate(kMemory - (int64_t{64} << 10));
    ASSERT_TRUE(held.ok()) << held.status();
    const absl::Status short_now = create(10, 0);
    EXPECT_EQ(short_now.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(MemoryMayBecomeFree(short_now)) << short_now;
    EXPECT_THAT(std::string(short_now.message()),
                HasSubstr("try again later, because 0.12 GiB would be free if no other process"));
    EXPECT_FALSE(MemoryMayBecomeFree(create(2000, 0))) << "more than the GPU has";
    EXPECT_FALSE(MemoryMayBecomeFree(create(10, 1 << 20))) << "more than the limit allows";
  }
  EXPECT_EQ(create(10, 0), absl::OkStatus());
  EXPECT_FALSE(MemoryMayBecomeFree(create(2000, 0)));
  emulated_cuda::SetEmulatedMachine({});
}

// The clones of a worker allocate at the same time.
TEST(EmulatedModelTest, MemoryThatAnotherProcessTakesMeanwhileMayBecomeFree) {
  const Problem problem(MakeTestConfig(""));
  constexpr size_t kMemory = size_t{128} << 20;
  emulated_cuda::SetEmulatedMachine({.memory_bytes = kMemory});
  const auto device = Open();
  DeviceRunnerOptions options;
  options.runner.max_batch = 10;
  const auto create = [&] {
    return MakeDeviceRunner(problem.spec, problem.layout, device.get(), options).status();
  };
  emulated_cuda::SetEmulatedMachine(
      {.memory_bytes = kMemory, .taken_at_allocation = kMemory - (size_t{1} << 20)});
  const absl::Status status = create();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(MemoryMayBecomeFree(status)) << status;
  emulated_cuda::SetEmulatedMachine({.memory_bytes = kMemory});
  EXPECT_EQ(create(), absl::OkStatus());
  emulated_cuda::SetEmulatedMachine({});
}

TEST(EmulatedModelTest, SaysWhetherMemoryForMoreBoxesMayBecomeFree) {
  Problem problem = TinyProblem(/*is_detector=*/true);
  std::vector<float> gradient(problem.variables.size());
  constexpr int64_t kMemory = int64_t{64} << 20;
  constexpr int64_t kRest = 100;  // too little for the boxes
  const auto fail = [&](int64_t limit, int64_t held_bytes) {
    emulated_cuda::SetEmulatedMachine({.memory_bytes = kMemory});
    const auto device = Open(limit), other = Open();
    const auto runner = OnDevice(problem, device.get(), SmallPieces());
    const auto step = [&] {
      return runner
          ->ForwardBackward(problem.variables, problem.Batch(3), 1, absl::MakeSpan(gradient),
                            [](int64_t) {})
          .status();
    };
    problem.SetObjects(2);
    EXPECT_EQ(step(), absl::OkStatus());
    const auto held = other->Allocate(held_bytes < 0 ? other->free_bytes() - kRest : held_bytes);
    problem.SetObjects(400);
    absl::Status status = step();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("for the boxes of this batch, the largest"));
    return status;
  };
  const absl::Status held = fail(0, -1);
  EXPECT_TRUE(MemoryMayBecomeFree(held)) << held;
  EXPECT_THAT(std::string(held.message()),
              testing::ContainsRegex("has no memory for [0-9]+ bytes: 100 bytes of 64.00 MiB are "
                                     "free; .*GPU's memory: try again later"));
  emulated_cuda::SetEmulatedMachine({.memory_bytes = kMemory});
  const auto device = Open();
  const auto runner = OnDevice(problem, device.get(), SmallPieces());
  const int64_t used = static_cast<int64_t>(emulated_cuda::EmulatedAllocatedBytes());
  const absl::Status limited = fail(used, 0);
  EXPECT_FALSE(MemoryMayBecomeFree(limited)) << limited;
  EXPECT_THAT(std::string(limited.message()), HasSubstr("lower train_config.batch_size"));
  emulated_cuda::SetEmulatedMachine({});
}

INSTANTIATE_TEST_SUITE_P(Networks, EmulatedDeviceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "detector" : "classifier"; });

}  // namespace
}  // namespace pushpull
