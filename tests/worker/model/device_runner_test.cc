// Compares a device runner with the host runner, on a device that defers all work.
#include "worker/model/device_runner.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/kernels/deferred_device.h"
#include "tests/testkit/kernels/random_images.h"
#include "tests/worker/model/device_problem.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class DeferredDeviceTest : public ::testing::TestWithParam<bool> {
 protected:
  DeferredDeviceTest()
      : problem_(TinyProblem(GetParam())),
        operators_(MakeReferenceOperators<float>()),
        host_(OnHost(problem_, operators_.get())) {}

  Problem problem_;
  const std::unique_ptr<Operators<float>> operators_;
  const std::unique_ptr<NetworkRunner> host_;
  DeferredDevice device_;
};

TEST_P(DeferredDeviceTest, StepsMatchTheHostWhetherRecordedOrNot) {
  const auto recording = OnDevice(problem_, &device_, SmallPieces());
  DeviceRunnerOptions plain = SmallPieces();
  plain.record_steps = false;
  DeferredDevice other;
  const auto playing = OnDevice(problem_, &other, plain);
  for (const int64_t samples : {3, 3, 1, 3, 1, 1, 2}) {
    const uint64_t seed = 10 + samples;
    const Outcome expected = Step(host_.get(), problem_, samples, seed);
    ExpectSame(expected, Step(recording.get(), problem_, samples, seed));
    ExpectSame(expected, Step(playing.get(), problem_, samples, seed));
  }
  // Batches of 3 and of 1 samples have been recorded once each; the batch of 2 came only once. The
  // forward pass is one piece.
  const Outcome last = Step(recording.get(), problem_, 3);
  const int pieces = 1 + static_cast<int>(last.firsts.size());
  EXPECT_EQ(device_.num_graphs(), 2 * pieces);
  EXPECT_EQ(device_.num_launches(), 5 * pieces);
  EXPECT_EQ(other.num_graphs(), 0);
}

TEST_P(DeferredDeviceTest, PiecesHaveTheWantedSizeAndGoFromTheEndToTheFront) {
  const DeviceRunnerOptions options = SmallPieces();
  const auto runner = OnDevice(problem_, &device_, options);
  const Outcome outcome = Step(runner.get(), problem_, 2);
  ASSERT_GT(outcome.firsts.size(), 2u);
  EXPECT_EQ(outcome.firsts.back(), 0);
  int64_t end = problem_.layout.total_elements();
  for (const int64_t first : outcome.firsts) {
    EXPECT_TRUE(first == 0 || (end - first) * 4 >= options.piece_bytes) << first << " " << end;
    EXPECT_LT(first, end);
    end = first;
  }
}

TEST_P(DeferredDeviceTest, NewVariablesAndSeedsReachARecordedStep) {
  const auto runner = OnDevice(problem_, &device_, SmallPieces());
  for (int i = 0; i < 3; ++i) Step(runner.get(), problem_, 2, 1);
  for (float& value : problem_.variables) value *= 1.25f;
  problem_.SetObjects(1);
  ExpectSame(Step(host_.get(), problem_, 2, 99), Step(runner.get(), problem_, 2, 99));
}

TEST(ImageInputTest, IsTheNetworksInputWithItsPadding) {
  NetworkSpec spec = MakeTinyNetwork();
  ImageInput input = ImageInputOf(spec);
  EXPECT_EQ(input.height, 7);
  EXPECT_EQ(input.width, 6);
  EXPECT_EQ(input.channels, 3);
  EXPECT_THAT(input.padding, testing::ElementsAre(0.0f, 0.0f, 0.0f));
  spec.keep_aspect_ratio = AspectRatioResize{5, 7, {1.0f, 2.0f, 3.0f}};
  input = ImageInputOf(spec);
  EXPECT_THAT(input.padding, testing::ElementsAre(1.0f, 2.0f, 3.0f));
}

TEST_P(DeferredDeviceTest, PackedImagesMeanTheSameNumbers) {
  const int64_t elements = problem_.spec.input.num_elements();
  const ImageInput input = ImageInputOf(problem_.spec);
  const RunnerOptions options{Problem::kMaxBatch, true, /*packed_images=*/true};
  DeviceRunnerOptions device_options = SmallPieces();
  device_options.runner = options;
  const auto on_device = OnDevice(problem_, &device_, device_options);
  const auto on_host =
      MakeHostRunner(problem_.spec, problem_.layout, operators_.get(), options).value();
  ImageBatch<float> as_numbers = problem_.Batch(Problem::kMaxBatch);
  std::vector<float> numbers(Problem::kMaxBatch * elements);
  std::vector<float> expected(problem_.variables.size()), actual(expected.size());
  const auto ignore = [](int64_t) {};
  for (NetworkRunner* const runner : {on_device.get(), on_host.get()}) {
    for (int round = 0; round < 3; ++round) {  // the second step is recorded, the third replays it
      const std::vector<char> block = RandomImages(input, Problem::kMaxBatch, round);
      operators_->SampleImages(input, Problem::kMaxBatch, block.data(), numbers.data());
      ImageBatch<float> as_images = as_numbers;
      as_images.images = nullptr;
      as_images.packed_images = ViewOf(block);
      as_numbers.images = numbers.data();
      ASSERT_TRUE(
          host_
              ->ForwardBackward(problem_.variables, as_numbers, 1, absl::MakeSpan(expected), ignore)
              .ok());
      ASSERT_TRUE(
          runner->ForwardBackward(problem_.variables, as_images, 1, absl::MakeSpan(actual), ignore)
              .ok());
      EXPECT_EQ(expected, actual) << round;
    }
  }
}

TEST_P(DeferredDeviceTest, RefusesInvalidPackedImages) {
  DeviceRunnerOptions options = SmallPieces();
  options.runner = {Problem::kMaxBatch, true, /*packed_images=*/true};
  const auto runner = OnDevice(problem_, &device_, options);
  const int64_t copied = device_.copied_bytes();
  ImageBatch<float> batch = problem_.Batch(2);
  const auto message = [&] {
    const absl::Status status = runner->Infer(problem_.variables, batch, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message(), "the batch has no packed images");
  const std::vector<char> block = RandomImages(ImageInputOf(problem_.spec), 2, 1);
  batch.packed_images = ViewOf(block);
  batch.packed_images.bytes -= 32;
  EXPECT_THAT(message(), testing::HasSubstr("image 1 of the batch"));
  const int64_t most = ImageBlockBytes(Problem::kMaxBatch, problem_.spec.input.num_elements());
  batch.packed_images.bytes = most + 1;
  EXPECT_THAT(message(), testing::HasSubstr(absl::StrCat("expected at most ", most)));
  EXPECT_EQ(device_.copied_bytes(), copied);
}

TEST_P(DeferredDeviceTest, RecordsAgainForMoreObjectsThanFit) {
  const auto runner = OnDevice(problem_, &device_, SmallPieces());
  for (int i = 0; i < 2; ++i) Step(runner.get(), problem_, 3);
  problem_.SetObjects(100);
  for (int i = 0; i < 3; ++i) {
    ExpectSame(Step(host_.get(), problem_, 3), Step(runner.get(), problem_, 3));
  }
}

TEST_P(DeferredDeviceTest, EvaluationAndOutputsMatchTheHost) {
  DeviceRunnerOptions options = SmallPieces();
  options.runner.training = false;
  const auto runner = OnDevice(problem_, &device_, options);
  for (const int64_t samples : {3, 1, 3}) {
    const auto expected = host_->Evaluate(problem_.variables, problem_.Batch(samples), 4);
    const auto actual = runner->Evaluate(problem_.variables, problem_.Batch(samples), 4);
    ASSERT_TRUE(expected.ok() && actual.ok()) << actual.status();
    EXPECT_EQ(expected->loss, actual->loss);
    EXPECT_EQ(Outputs(*host_, samples), Outputs(*runner, samples));
  }
  ImageBatch<float> images;
  images.images = problem_.Batch(2).images;
  images.samples = 2;
  ASSERT_TRUE(host_->Infer(problem_.variables, images, 4).ok());
  ASSERT_TRUE(runner->Infer(problem_.variables, images, 4).ok());
  EXPECT_EQ(Outputs(*host_, 2), Outputs(*runner, 2));
  std::vector<float> gradient(problem_.variables.size());
  EXPECT_EQ(runner
                ->ForwardBackward(problem_.variables, problem_.Batch(1), 1,
                                  absl::MakeSpan(gradient), [](int64_t) {})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(DeferredDeviceTest, AFailureDuringAStepIsReturnedAndStays) {
  const auto runner = OnDevice(problem_, &device_, SmallPieces());
  const Outcome whole = Step(runner.get(), problem_, 2);
  device_.FailAfter(25);
  std::vector<float> gradient(problem_.variables.size());
  size_t announced = 0;
  for (int i = 0; i < 2; ++i) {
    const absl::Status status =
        runner
            ->ForwardBackward(problem_.variables, problem_.Batch(2), 1, absl::MakeSpan(gradient),
                              [&announced](int64_t) { ++announced; })
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("fell off the bus"));
  }
  EXPECT_LT(announced, whole.firsts.size());
  EXPECT_EQ(runner->Infer(problem_.variables, problem_.Batch(2), 0).code(),
            absl::StatusCode::kAborted);
}

TEST(DeferredMemoryTest, NamesABatchThatWouldFit) {
  const Problem problem(MakeTestConfig(""));
  DeviceRunnerOptions options;
  const auto create = [&](int64_t batch, int64_t memory) {
    DeferredDevice device(memory);
    options.runner.max_batch = batch;
    const auto runner = MakeDeviceRunner(problem.spec, problem.layout, &device, options);
    return runner.status();
  };
  constexpr int64_t kMemory = int64_t{100} << 20;
  const absl::Status status = create(4000, kMemory);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("deferred device: a batch of 4000 needs "));
  EXPECT_THAT(message, HasSubstr("0.10 GiB are free"));
  EXPECT_THAT(
      message,
      HasSubstr(
          "would fit: lower train_config.batch_size or, in synchronous mode, use more clones"));
  // The suggested batch size fits, and a much larger one does not.
  const size_t at = message.find("are free; ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t fits = std::stoll(message.substr(at + 10));
  EXPECT_GT(fits, 1);
  EXPECT_TRUE(create(fits, kMemory).ok()) << fits;
  EXPECT_FALSE(create(2 * fits + 16, kMemory).ok()) << fits;
  EXPECT_THAT(std::string(create(4, 1 << 20).message()), HasSubstr("not even 1 would fit"));
  options.runner.training = false;
  EXPECT_THAT(std::string(create(65535, kMemory).message()),
              HasSubstr("would fit: lower eval_config.batch_size"));
}

TEST(DeviceBatchTest, RefusesMoreSamplesThanALaunchCanHave) {
  const Problem problem(MakeTestConfig(""));
  DeviceRunnerOptions options;
  const auto create = [&](int64_t batch) {
    DeferredDevice device(int64_t{1} << 20);
    options.runner.max_batch = batch;
    return MakeDeviceRunner(problem.spec, problem.layout, &device, options).status();
  };
  const absl::Status status = create(65536);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "train_config.batch_size: a batch of one process has up to 65536 samples, expected at "
            "most 65535; lower it or, in synchronous mode, use more clones");
  EXPECT_EQ(create(65535).code(), absl::StatusCode::kResourceExhausted);
  options.runner.training = false;
  EXPECT_THAT(std::string(create(65536).message()), HasSubstr("eval_config.batch_size: "));
}

INSTANTIATE_TEST_SUITE_P(Networks, DeferredDeviceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "detector" : "classifier"; });

}  // namespace
}  // namespace pushpull
