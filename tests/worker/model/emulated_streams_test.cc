// Staged steps on emulated GPUs whose streams run in many orders: as late as CUDA's may, and by
// chance. All host memory is page-locked, so that a copy reads it when it runs. The host fills it
// anew as soon as the runner's interface permits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "tests/testkit/kernels/random_images.h"
#include "tests/worker/model/device_problem.h"

namespace pushpull {
namespace {

constexpr int kSeeds = 6;

class EmulatedStreamsTest : public ::testing::TestWithParam<bool> {
 protected:
  EmulatedStreamsTest() : problem_(TinyProblem(GetParam())) {}
  ~EmulatedStreamsTest() override { emulated_cuda::SetEmulatedMachine({}); }

  absl::Span<float> Vector(int i) {
    return {static_cast<float*>(vectors_[i]->data()), problem_.variables.size()};
  }
  void FillVariables(int i, int step) {
    for (size_t e = 0; e < problem_.variables.size(); ++e) {
      Vector(i)[e] = problem_.variables[e] * (1.0f + 0.05f * static_cast<float>(step % 7));
    }
  }
  void FillImages(int i, int step) {
    const std::vector<char> block =
        RandomImages(ImageInputOf(problem_.spec), Problem::kMaxBatch, static_cast<uint64_t>(step));
    std::memcpy(images_[i]->data(), block.data(), block.size());
    packed_images_[i] = {images_[i]->data(), static_cast<int64_t>(block.size())};
  }
  ImageBatch<float> Batch(int images, int64_t samples) {
    ImageBatch<float> batch = problem_.Batch(samples);
    batch.images = nullptr;
    batch.packed_images = packed_images_[images];
    return batch;
  }

  // Runs steps with staged variables and images and compares them with those of the host.
  void ExpectStepsOfTheHost() {
    const auto operators = MakeReferenceOperators<float>();
    auto device = emulated_cuda::OpenDevice({}).value();
    DeviceRunnerOptions options = SmallPieces();
    options.runner = {Problem::kMaxBatch, /*training=*/true, /*packed_images=*/true};
    options.forward_piece_bytes = 2048;
    const auto runner = OnDevice(problem_, device.get(), options);
    const auto host =
        MakeHostRunner(problem_.spec, problem_.layout, operators.get(), options.runner).value();
    const int64_t total = problem_.layout.total_elements();
    for (auto& vector : vectors_) vector = runner->AllocateVector().value();
    const int64_t image_bytes =
        ImageBlockBytes(Problem::kMaxBatch, problem_.spec.input.num_elements());
    for (auto& images : images_) images = runner->AllocateImages(image_bytes).value();
    problem_.SetObjects(2);
    FillImages(0, 0);
    for (int step = 0; step < 5; ++step) {
      SCOPED_TRACE(step);
      const int now = step % 2, next = 1 - now;
      const int64_t samples = step == 3 ? 2 : 3;
      FillVariables(now, step);
      if (step == 3) problem_.SetObjects(40);  // a detector's buffers grow
      if (step == 4) {                         // the images that were announced are not used
        runner->CancelBatch();
        images_[now].reset();
        images_[now] = runner->AllocateImages(image_bytes).value();
        FillImages(now, step);
      }
      const ImageBatch<float> batch = Batch(now, samples);
      runner->StageStep(Vector(now), batch, step);
      for (int64_t first = 0; first < total; first = std::min<int64_t>(first + 90, total)) {
        runner->StageVariables(Vector(now), first, std::min<int64_t>(first + 90, total));
      }
      std::vector<float> expected(total);
      ASSERT_TRUE(
          host->ForwardBackward(Vector(now), batch, step, absl::MakeSpan(expected), [](int64_t) {})
              .ok());
      const absl::Span<float> gradient = Vector(2);
      std::fill(gradient.begin(), gradient.end(), -5.0f);
      const auto result = runner->ForwardBackward(
          Vector(now), batch, step, gradient,
          [&] {
            FillVariables(next, step + 3);  // nothing uses them
            FillImages(next, step + 1);
            runner->StageImages(packed_images_[next]);
          },
          [&](int64_t first) {
            double error = 0.0, norm = 0.0;
            for (int64_t e = first; e < total; ++e) {
              error += std::pow(double{gradient[e]} - double{expected[e]}, 2);
              norm += std::pow(double{expected[e]}, 2);
            }
            EXPECT_LE(std::sqrt(error), 1e-4 * std::sqrt(norm) + 1e-6) << "from " << first;
          });
      ASSERT_TRUE(result.ok()) << result.status();
    }
  }

  Problem problem_;
  std::unique_ptr<Memory> vectors_[3], images_[2];  // the last vector is the gradient
  PackedImages packed_images_[2];
};

TEST_P(EmulatedStreamsTest, StepsMatchTheHostIfStreamsRunAsLateAsTheyMay) {
  emulated_cuda::SetEmulatedMachine({.defers = true});
  ExpectStepsOfTheHost();
}

TEST_P(EmulatedStreamsTest, StepsMatchTheHostIfStreamsRunInAnyOrder) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    emulated_cuda::SetEmulatedMachine({.seed = seed});
    ExpectStepsOfTheHost();
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, EmulatedStreamsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "detector" : "classifier"; });

}  // namespace
}  // namespace pushpull
