// Staging tells a device runner of a step in advance. It may change when things happen, but never a
// result. The tests run on a device that defers all work as long as it can, with uploads as early
// or as late as allowed.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/kernels/deferred_device.h"
#include "tests/testkit/kernels/random_images.h"
#include "tests/worker/model/device_problem.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxBatch = Problem::kMaxBatch;

using Uploads = DeferredDevice::Uploads;
using Case = std::tuple<bool, Uploads>;  // whether it is a detector, and when uploads happen

class DeviceStagingTest : public ::testing::TestWithParam<Case> {
 protected:
  DeviceStagingTest()
      : problem_(TinyProblem(std::get<0>(GetParam()))),
        total_(problem_.layout.total_elements()),
        block_bytes_(ImageBlockBytes(kMaxBatch, problem_.spec.input.num_elements())),
        operators_(MakeReferenceOperators<float>()) {
    device_.SetUploads(std::get<1>(GetParam()));
    const RunnerOptions options{kMaxBatch, true, /*packed_images=*/true};
    DeviceRunnerOptions device_options = SmallPieces();
    device_options.runner = options;
    device_options.forward_piece_bytes = 2048;
    runner_ = OnDevice(problem_, &device_, device_options);
    host_ = MakeHostRunner(problem_.spec, problem_.layout, operators_.get(), options).value();
    for (auto& vector : vectors_) vector = runner_->AllocateVector().value();
    for (auto& images : images_) images = runner_->AllocateImages(block_bytes_).value();
  }

  float* Vector(int i) { return static_cast<float*>(vectors_[i]->data()); }
  absl::Span<const float> Variables(int i) { return {Vector(i), static_cast<size_t>(total_)}; }

  // Fills in the variables and images of step `t`.
  void FillVariables(int i, int t) {
    for (int64_t e = 0; e < total_; ++e) {
      Vector(i)[e] = problem_.variables[e] * (1.0f + 0.05f * static_cast<float>(t % 7));
    }
  }
  void FillImages(int i, int t) {
    const std::vector<char> block =
        RandomImages(ImageInputOf(problem_.spec), kMaxBatch, static_cast<uint64_t>(t));
    ASSERT_LE(static_cast<int64_t>(block.size()), block_bytes_);
    std::memcpy(images_[i]->data(), block.data(), block.size());
    packed_images_[i] = {images_[i]->data(), static_cast<int64_t>(block.size())};
  }
  ImageBatch<float> Batch(int images, int64_t samples) {
    ImageBatch<float> batch = problem_.Batch(samples);
    batch.images = nullptr;
    batch.packed_images = packed_images_[images];
    return batch;
  }
  // Stages the variables in pieces of an odd size.
  void StageVariables(int i, int64_t until) {
    for (int64_t first = 0; first < until;) {
      const int64_t end = std::min(first + 90, until);
      runner_->StageVariables(Variables(i), first, end);
      first = end;
    }
  }

  // Stages a step and its variables up to element `until`.
  void StageStep(int variables, int images, int64_t samples, uint64_t seed, int64_t until) {
    runner_->StageStep(Variables(variables), Batch(images, samples), seed);
    StageVariables(variables, until);
  }

  std::vector<float> Run(
      NetworkRunner* runner, int variables, const ImageBatch<float>& batch, uint64_t seed,
      absl::FunctionRef<void()> under_way = [] {}) {
    std::vector<float> gradient(total_, -5.0f);
    int times = 0;
    const auto result = runner->ForwardBackward(
        Variables(variables), batch, seed, absl::MakeSpan(gradient),
        [&] {
          ++times;
          under_way();
        },
        [&](int64_t) { EXPECT_EQ(times, 1); });
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(times, 1);
    return gradient;
  }
  void ExpectHostsStep(int variables, int images, int64_t samples, uint64_t seed) {
    const ImageBatch<float> batch = Batch(images, samples);
    const std::vector<float> expected = Run(host_.get(), variables, batch, seed);
    EXPECT_EQ(Run(runner_.get(), variables, batch, seed), expected);
  }

  Problem problem_;
  const int64_t total_;
  const int64_t block_bytes_;
  const std::unique_ptr<Operators<float>> operators_;
  DeferredDevice device_;
  std::unique_ptr<NetworkRunner> runner_, host_;
  std::unique_ptr<Memory> vectors_[2], images_[3];
  PackedImages packed_images_[3];
};

TEST_P(DeviceStagingTest, StagedStepsMatchTheHost) {
  FillImages(0, 0);
  const int64_t first_images = packed_images_[0].bytes;
  int64_t first_step = 0;
  for (int t = 0; t < 9; ++t) {  // played, recorded, replayed, with alternating batch sizes
    SCOPED_TRACE(t);
    const int64_t samples = t % 3 == 2 ? 2 : 3;
    const int now = t % 2, images = t % 3, next_images = (t + 1) % 3;
    FillVariables(now, t);
    const ImageBatch<float> batch = Batch(images, samples);
    const std::vector<float> expected = Run(host_.get(), now, batch, t);
    const int64_t copied = device_.copied_bytes();
    runner_->StageStep(Variables(now), batch, t);
    StageVariables(now, total_);
    const std::vector<float> gradient = Run(runner_.get(), now, batch, t, [&] {
      FillImages(next_images, t + 1);
      runner_->StageImages(packed_images_[next_images]);
    });
    EXPECT_EQ(gradient, expected);
    const int64_t in_step = device_.copied_bytes() - copied;
    EXPECT_LT(in_step, total_ * 4) << "the step itself must not copy the variables";
    // The images of the first step have not been staged.
    if (t == 0) first_step = in_step;
    if (t > 0 && samples == 3) {
      EXPECT_EQ(in_step, first_step - first_images);
    }
  }
  EXPECT_GE(device_.uploaded_bytes(), 9 * total_ * 4);
}

TEST_P(DeviceStagingTest, ForwardBeginsWhileVariablesArrive) {
  FillVariables(0, 1);
  FillImages(0, 1);
  for (int t = 0; t < 2; ++t) ExpectHostsStep(0, 0, 3, 1);  // the second step is recorded
  const int launches = device_.num_launches();
  runner_->StageStep(Variables(0), Batch(0, 3), 1);
  EXPECT_EQ(device_.num_launches(), launches);
  StageVariables(0, total_ / 2);
  const int half = device_.num_launches();
  EXPECT_GT(half, launches);
  // The range begins at another element than the one that is due.
  runner_->StageVariables(Variables(0), total_ / 2 / 90 * 90, total_);
  EXPECT_EQ(device_.num_launches(), half) << "variables staged with a gap must not be used";
  ExpectHostsStep(0, 0, 3, 1);
}

TEST_P(DeviceStagingTest, VariablesStagedBeforeAGapDoNotReachTheNextStep) {
  FillVariables(0, 1);
  FillVariables(1, 5);
  FillImages(0, 1);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    StageVariables(0, total_ / 2);
    runner_->StageVariables(Variables(0), total_ / 2 + 1, total_);
    ExpectHostsStep(1, 0, 3, 1);
  }
}

TEST_P(DeviceStagingTest, WrongHintsChangeNothing) {
  FillVariables(0, 1);
  FillVariables(1, 2);
  for (int i = 0; i < 3; ++i) FillImages(i, i);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    // The step has other images than staged.
    StageStep(0, 0, 3, 5, total_);
    ExpectHostsStep(0, 1, 3, 5);
    // The step has another seed than staged.
    StageStep(0, 0, 3, 6, total_);
    ExpectHostsStep(0, 0, 3, 7);
    // The step has fewer samples than staged, then more.
    StageStep(0, 0, 3, 6, total_);
    ExpectHostsStep(0, 0, 2, 6);
    StageStep(0, 0, 2, 6, total_);
    ExpectHostsStep(0, 0, 3, 6);
    // The step has other variables, of which only some had been staged.
    StageStep(0, 0, 3, 8, total_ / 3);
    ExpectHostsStep(1, 0, 3, 8);
    ExpectHostsStep(0, 0, 3, 8);
    // All variables are staged, but a step with other variables comes first.
    StageVariables(0, total_);
    ExpectHostsStep(1, 0, 3, 8);
    ExpectHostsStep(0, 0, 3, 8);
    // The staged images are cancelled, from another batch, incomplete, or too many.
    runner_->StageImages(packed_images_[2]);
    const int64_t performed = device_.performed();
    runner_->CancelBatch();
    if (std::get<1>(GetParam()) == Uploads::kWhenAwaited) {
      EXPECT_GT(device_.performed(), performed)
          << "the images must have been read before they may change";
    }
    FillImages(2, 40 + round);
    ExpectHostsStep(1, 2, 3, 9);
    // A cancelled step has already read its images.
    runner_->StageStep(Variables(0), Batch(2, 3), 5);
    const int64_t before = device_.performed();
    runner_->CancelBatch();
    if (std::get<1>(GetParam()) == Uploads::kWhenAwaited) {
      EXPECT_GT(device_.performed(), before);
    }
    FillImages(2, 70 + round);
    StageVariables(0, total_);
    ExpectHostsStep(0, 2, 3, 5);
    FillImages(0, 60 + round);
    runner_->StageImages({packed_images_[0].data, packed_images_[0].bytes / 2});
    ExpectHostsStep(1, 0, 3, 9);
    runner_->StageImages(packed_images_[0]);
    runner_->StageImages(packed_images_[1]);
    ExpectHostsStep(1, 0, 3, 10);
    const int64_t uploaded = device_.uploaded_bytes();
    runner_->StageImages({packed_images_[0].data, block_bytes_ + 1});
    EXPECT_EQ(device_.uploaded_bytes(), uploaded);
    ExpectHostsStep(1, 0, 3, 11);
  }
}

TEST_P(DeviceStagingTest, ARestartedPullIsStagedFromTheBeginning) {
  FillImages(0, 3);
  for (int t = 0; t < 4; ++t) {
    SCOPED_TRACE(t);
    FillVariables(0, 50 + t);  // values that were damaged on the way
    StageStep(0, 0, 3, t, total_ * 2 / 3);
    FillVariables(0, t);
    if (t % 2 == 0) runner_->StageStep(Variables(0), Batch(0, 3), t);
    StageVariables(0, total_);
    ExpectHostsStep(0, 0, 3, t);
    // A second step with the same variables, as for a clone with two replicas.
    ExpectHostsStep(0, 0, 2, t + 100);
  }
}

TEST_P(DeviceStagingTest, AStagedStepGivesWayToAnEvaluationAndToMoreObjects) {
  FillVariables(0, 1);
  FillImages(0, 3);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    StageStep(0, 0, 3, 1, total_);
    const auto expected = host_->Evaluate(Variables(0), Batch(0, 2), 4);
    const auto actual = runner_->Evaluate(Variables(0), Batch(0, 2), 4);
    ASSERT_TRUE(expected.ok() && actual.ok()) << actual.status();
    EXPECT_EQ(expected->loss, actual->loss);
    EXPECT_EQ(Outputs(*host_, 2), Outputs(*runner_, 2));
    ExpectHostsStep(0, 0, 3, 1);
    StageStep(0, 0, 3, 3, total_ / 2);
    EXPECT_EQ(runner_->Evaluate(Variables(0), Batch(0, 2), 4)->loss, expected->loss);
    runner_->StageVariables(Variables(0), total_ / 2, total_);
    ExpectHostsStep(0, 0, 3, 3);
    StageStep(0, 0, 3, 2, total_ / 2);
    problem_.SetObjects(40 * (round + 1));
    ExpectHostsStep(0, 0, 3, 2);
  }
}

TEST_P(DeviceStagingTest, DoesNotBeginAnInvalidStep) {
  FillVariables(0, 1);
  FillImages(0, 3);
  ImageBatch<float> batch = Batch(0, kMaxBatch + 1);
  runner_->StageStep(Variables(0), batch, 1);
  batch.samples = 0;
  runner_->StageStep(Variables(0), batch, 1);
  runner_->StageStep(Variables(0).subspan(1), Batch(0, 1), 1);
  if (!std::get<0>(GetParam())) {
    const std::vector<int32_t> labels(kMaxBatch, 1000);
    batch = Batch(0, kMaxBatch);
    batch.labels = labels.data();
    runner_->StageStep(Variables(0), batch, 1);
  }
  EXPECT_EQ(device_.copied_bytes(), 0);
  StageVariables(0, total_);
  ExpectHostsStep(0, 0, 3, 1);
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const char* const names[] = {"when_awaited", "at_once", "behind_computing",
                               "nothing_is_deferred"};
  return std::string(std::get<0>(info.param) ? "detector_" : "classifier_") +
         names[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Networks, DeviceStagingTest,
    ::testing::Combine(::testing::Bool(),
                       ::testing::Values(Uploads::kWhenAwaited, Uploads::kAtOnce,
                                         Uploads::kBehindComputing, Uploads::kNothingIsDeferred)),
    CaseName);

}  // namespace
}  // namespace pushpull
