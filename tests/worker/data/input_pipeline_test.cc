#include "worker/data/input_pipeline.h"

#include <atomic>
#include <numeric>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/data/data_test_util.h"
#include "worker/data/synthetic_source.h"

namespace pushpull {
namespace {

using Mode = SamplerOptions::Mode;

Sampler MakeSampler(const SamplerOptions& options) { return Sampler(options); }

InputPipelineOptions Options(std::vector<int> replicas, int threads = 2, int depth = 2) {
  InputPipelineOptions options;
  config::TrainConfig train;
  train.add_data_augmentation_options()->mutable_random_horizontal_flip();
  train.add_data_augmentation_options()->mutable_ssd_random_crop();
  train.add_data_augmentation_options()->mutable_random_shift()->set_max_pixels(2);
  options.augmentation = ParseAugmentation(train.data_augmentation_options());
  options.shape = {8, 8, 1};
  options.replicas = std::move(replicas);
  options.num_threads = threads;
  options.queue_depth = depth;
  return options;
}

// Expects the batch that the sampler gives, computed without threads.
void ExpectBatch(const ImageSource& source, const Sampler& sampler,
                 const InputPipelineOptions& options, int64_t step, int replica,
                 const absl::StatusOr<const InputBatch*>& batch) {
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ((*batch)->step, step);
  ASSERT_EQ((*batch)->replica, replica);
  std::vector<Sample> samples;
  sampler.GetBatch(step, replica, &samples);
  ASSERT_EQ((*batch)->n, static_cast<int64_t>(samples.size()));
  ASSERT_EQ((*batch)->labels.size(), samples.size());
  Preprocessor preprocessor(options.shape);
  Example example;
  std::vector<float> expected(options.shape.num_elements());
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_TRUE(source.Get(samples[i].index, &example).ok());
    ASSERT_EQ((*batch)->labels[i], example.label) << i;
    const uint64_t seed = sampler.options().seed;
    EXPECT_EQ((*batch)->original_sizes[i].height, example.image.height);
    EditableImage image;
    image.Take(&example.image);
    Augment(options.augmentation, seed, samples[i].position, &image, &example.boxes);
    ASSERT_EQ((*batch)->boxes[i].size(), example.boxes.size()) << i;
    for (size_t k = 0; k < example.boxes.size(); ++k) {
      EXPECT_EQ((*batch)->boxes[i][k].xmin, example.boxes[k].xmin);
      EXPECT_EQ((*batch)->boxes[i][k].label, example.boxes[k].label);
    }
    preprocessor.Run(image.View(), DrawShift(options.augmentation, seed, samples[i].position),
                     expected.data());
    const float* const got = (*batch)->images + i * expected.size();
    ASSERT_EQ(std::vector<float>(got, got + expected.size()), expected) << "sample " << i;
  }
}

TEST(InputPipelineTest, BatchesFollowTheSamplerForAnyThreadsAndDepth) {
  const auto source = std::make_unique<SyntheticSource>(
      SyntheticOptions{.num_examples = 50, .height = 16, .width = 16});
  const Sampler sampler =
      MakeSampler({.seed = 3, .num_examples = 50, .batch_size = 31, .num_replicas = 3});
  for (const auto& [threads, depth] : std::vector<std::pair<int, int>>{{1, 1}, {4, 1}, {3, 5}}) {
    const InputPipelineOptions options = Options({2, 0}, threads, depth);
    const auto created = InputPipeline::Create(source.get(), sampler, options).value();
    InputPipeline& pipeline = *created;
    for (int64_t step = 4; step < 14; ++step) {
      for (const int replica : {0, 2}) {
        ExpectBatch(*source, sampler, options, step, replica, pipeline.Next(step, replica));
      }
    }
  }
}

TEST(InputPipelineTest, PackedImagesMeanTheSameNumbersAndLieInTheGivenMemory) {
  const auto source = std::make_unique<SyntheticSource>(
      SyntheticOptions{.num_examples = 20, .height = 19, .width = 17});
  const Sampler sampler = MakeSampler({.seed = 3, .num_examples = 20, .batch_size = 13});
  InputPipelineOptions options = Options({0}, 3);
  options.shape = {12, 10,
                   1};  // whole images are too large to be packed, most crop windows are not
  const auto floats = InputPipeline::Create(source.get(), sampler, options).value();
  options.format = PixelFormat::kPackedImages;
  std::vector<std::pair<const void*, int64_t>> given;
  const auto allocate = [&](int64_t bytes) {
    auto memory = HostMemory()->Allocate(bytes);
    given.emplace_back((*memory)->data(), bytes);
    return memory;
  };
  const auto packed_images =
      InputPipeline::Create(source.get(), sampler, options, allocate).value();
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given[0].second, ImageBlockBytes(13, 12 * 10));
  const auto operators = MakeReferenceOperators<float>();
  const ImageInput input = {12, 10, 1, {}};
  std::vector<float> images(13 * 12 * 10);
  int finished_inputs = 0;
  for (int64_t step = 0; step < 6; ++step) {
    const InputBatch& expected = **floats->Next(step, 0);
    const InputBatch& actual = **packed_images->Next(step, 0);
    ASSERT_EQ(actual.images, nullptr);
    ASSERT_EQ(actual.n, expected.n);
    EXPECT_EQ(actual.labels, expected.labels);
    EXPECT_TRUE(std::any_of(given.begin(), given.end(), [&](const auto& block) {
      return block.first == actual.packed_images.data && actual.packed_images.bytes <= block.second;
    }));
    ASSERT_EQ(CheckPackedImages(input, actual.n, actual.packed_images), absl::OkStatus());
    operators->SampleImages(input, actual.n, actual.packed_images.data, images.data());
    ASSERT_EQ(images, std::vector<float>(expected.images, expected.images + images.size()));
    for (int64_t i = 0; i < actual.n; ++i) {
      finished_inputs += actual.packed_images.images()[i].is_input;
    }
  }
  EXPECT_GT(finished_inputs, 0);
  EXPECT_LT(finished_inputs, 6 * 13);
}

TEST(InputPipelineTest, FailsWithoutMemory) {
  const FakeSource source(97, 8, 8, 1, 10);
  const Sampler sampler = MakeSampler({.num_examples = 97, .batch_size = 11});
  const auto refuse = [](int64_t) -> absl::StatusOr<std::unique_ptr<Memory>> {
    return absl::ResourceExhaustedError("no page-locked memory");
  };
  EXPECT_EQ(InputPipeline::Create(&source, sampler, Options({0}), refuse).status().message(),
            "no page-locked memory");
}

TEST(InputPipelineTest, EveryJumpGivesTheRightBatch) {
  const FakeSource source(97, 8, 8, 1, 10);
  const Sampler sampler =
      MakeSampler({.seed = 3, .num_examples = 97, .batch_size = 20, .num_replicas = 2});
  const InputPipelineOptions options = Options({0, 1}, 3, 3);
  const auto created = InputPipeline::Create(&source, sampler, options).value();
  InputPipeline& pipeline = *created;
  uint32_t random = 1;
  for (int i = 0; i < 300; ++i) {
    random = random * 1664525 + 1013904223;
    const int64_t step = (random >> 8) % 5;
    const int replica = static_cast<int>((random >> 16) % 2);
    ExpectBatch(source, sampler, options, step, replica, pipeline.Next(step, replica));
  }
}

TEST(InputPipelineTest, ReplicasCanChange) {
  const FakeSource source(97, 8, 8, 1, 10);
  const Sampler sampler = MakeSampler({.num_examples = 97, .batch_size = 11, .num_replicas = 3});
  const InputPipelineOptions options = Options({1});
  const auto created = InputPipeline::Create(&source, sampler, options).value();
  InputPipeline& pipeline = *created;
  ExpectBatch(source, sampler, options, 5, 1, pipeline.Next(5, 1));
  EXPECT_EQ(pipeline.Next(5, 2).status().code(), absl::StatusCode::kInvalidArgument);
  const auto kept = pipeline.Next(6, 1);
  pipeline.SetReplicas({1, 2});
  ExpectBatch(source, sampler, options, 6, 1, kept);
  ExpectBatch(source, sampler, options, 6, 2, pipeline.Next(6, 2));
  ExpectBatch(source, sampler, options, 7, 1, pipeline.Next(7, 1));
  ExpectBatch(source, sampler, options, 7, 2, pipeline.Next(7, 2));
}

// Counts reads, to show which batches were prepared in vain.
class CountingSource final : public ImageSource {
 public:
  explicit CountingSource(int64_t size) : inner_(size, 8, 8, 1, 10) {}
  int64_t size() const override { return inner_.size(); }
  int num_classes() const override { return inner_.num_classes(); }
  std::string describe() const override { return "counting"; }
  absl::Status Get(int64_t index, Example* example) const override {
    ++reads;
    return inner_.Get(index, example);
  }
  absl::Status Check(ThreadPool*, StoppedFn) const override { return absl::OkStatus(); }
  mutable std::atomic<int64_t> reads{0};

 private:
  FakeSource inner_;
};

TEST(InputPipelineTest, PreparesNoMoreThanItsQueueAndWastesNothing) {
  const CountingSource source(1000);
  for (const auto mode : {Mode::kSync, Mode::kAsync}) {
    source.reads = 0;
    const Sampler sampler =
        MakeSampler({.mode = mode, .num_examples = 1000, .batch_size = 10, .num_replicas = 2});
    const int64_t per_batch = sampler.MaxReplicaBatchSize();
    constexpr int kDepth = 3;
    const auto created =
        InputPipeline::Create(&source, sampler, Options({0, 1}, 4, kDepth)).value();
    InputPipeline& pipeline = *created;
    EXPECT_EQ(source.reads, 0);
    int64_t batches = 0;
    for (int64_t step = 0; step < 50; ++step) {
      // In asynchronous mode, each replica is at a different step.
      for (const int replica : {0, 1}) {
        const int64_t own_step = mode == Mode::kAsync && replica == 1 ? step + 100 : step;
        const auto batch = pipeline.Next(own_step, replica);
        ASSERT_TRUE(batch.ok());
        ++batches;
        // In asynchronous mode, the first call for replica 1 is one more jump.
        const int64_t jumps = mode == Mode::kAsync ? 1 : 0;
        EXPECT_LE(source.reads, (batches + kDepth * (1 + jumps)) * per_batch);
      }
    }
  }
}

// The order of local steps: a replica's whole row, then that of the next replica.
TEST(InputPipelineTest, PreparesRowsOfOneReplicaWithoutWaste) {
  const CountingSource source(1000);
  for (const auto mode : {Mode::kSync, Mode::kAsync}) {
    source.reads = 0;
    const Sampler sampler =
        MakeSampler({.mode = mode, .num_examples = 1000, .batch_size = 10, .num_replicas = 2});
    constexpr int kDepth = 3;
    constexpr int64_t kRow = 5;
    InputPipelineOptions options = Options({0, 1}, 4, kDepth);
    options.steps_in_a_row = kRow;
    const auto pipeline = InputPipeline::Create(&source, sampler, options).value();
    int64_t batches = 0;
    for (int64_t step = 2; step < 40; step = (step / kRow + 1) * kRow) {  // begins within a row
      for (const int replica : {0, 1}) {
        const int64_t first = replica == 0 ? step : step / kRow * kRow;
        for (int64_t at = first; at < (step / kRow + 1) * kRow; ++at) {
          ASSERT_TRUE(pipeline->Next(at, replica).ok());
          ++batches;
        }
      }
    }
    EXPECT_LE(source.reads, (batches + kDepth) * sampler.MaxReplicaBatchSize());
  }
}

TEST(InputPipelineTest, EvaluationEndsWithAPartialBatchAndThenEmptyOnes) {
  const FakeSource source(10, 8, 8, 1, 10);
  const Sampler sampler =
      MakeSampler({.mode = Mode::kEvaluate, .num_examples = 10, .batch_size = 4, .shuffle = false});
  InputPipelineOptions options = Options({0}, 2, 2);
  options.augmentation = {};
  const auto created = InputPipeline::Create(&source, sampler, options).value();
  InputPipeline& pipeline = *created;
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int> labels;
    for (int64_t step = 0;; ++step) {
      const auto batch = pipeline.Next(step, 0);
      ExpectBatch(source, sampler, options, step, 0, batch);
      if ((*batch)->n == 0) break;
      labels.insert(labels.end(), (*batch)->labels.begin(), (*batch)->labels.end());
    }
    std::vector<int> expected(10);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(labels, expected);
  }
}

TEST(InputPipelineTest, AnErrorBelongsToItsBatchAndDoesNotEndThePipeline) {
  FakeSource source(40, 8, 8, 1, 10);
  source.bad_index = 25;
  const Sampler sampler = MakeSampler({.num_examples = 40, .batch_size = 10, .shuffle = false});
  const InputPipelineOptions options = Options({0}, 3, 2);
  const auto created = InputPipeline::Create(&source, sampler, options).value();
  InputPipeline& pipeline = *created;
  ExpectBatch(source, sampler, options, 0, 0, pipeline.Next(0, 0));
  ExpectBatch(source, sampler, options, 1, 0, pipeline.Next(1, 0));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto batch = pipeline.Next(2, 0);
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(batch.status().message(), "example 25 is bad");
  }
  ExpectBatch(source, sampler, options, 3, 0, pipeline.Next(3, 0));
}

// Blocks every read until the test releases it.
class BlockingSource final : public ImageSource {
 public:
  int64_t size() const override { return 100; }
  int num_classes() const override { return 1; }
  std::string describe() const override { return "blocking"; }
  absl::Status Get(int64_t, Example* example) const override {
    if (!entered.HasBeenNotified() && !claimed.exchange(true)) entered.Notify();
    release.WaitForNotification();
    example->image = MakeImage(8, 8, 1);
    return absl::OkStatus();
  }
  absl::Status Check(ThreadPool*, StoppedFn) const override { return absl::OkStatus(); }
  mutable std::atomic<bool> claimed{false};
  mutable absl::Notification entered;
  mutable absl::Notification release;
};

TEST(InputPipelineTest, AJumpWaitsForBuffersThatAreBeingFilled) {
  const BlockingSource source;
  const Sampler sampler = MakeSampler({.num_examples = 100, .batch_size = 4});
  const InputPipelineOptions options = Options({0}, 2, 1);
  const auto created = InputPipeline::Create(&source, sampler, options).value();
  InputPipeline& pipeline = *created;
  std::thread release([&source] {
    source.entered.WaitForNotification();
    source.release.Notify();
  });
  for (const int64_t step : {0, 50, 7, 50, 3}) {
    const auto batch = pipeline.Next(step, 0);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ((*batch)->step, step);
  }
  release.join();
}

TEST(InputPipelineTest, ReportsWhichPartOfTheInputTheImageCovers) {
  const auto source = std::make_unique<SyntheticSource>(
      SyntheticOptions{.num_examples = 4, .height = 20, .width = 40});
  const Sampler sampler =
      MakeSampler({.mode = Mode::kEvaluate, .num_examples = 4, .batch_size = 4, .shuffle = false});
  InputPipelineOptions options;
  options.shape = {16, 16, 3, AspectRatioResize{8, 16, {}}};
  const auto created = InputPipeline::Create(source.get(), sampler, options).value();
  InputPipeline& pipeline = *created;
  const absl::StatusOr<const InputBatch*> batch = pipeline.Next(0, 0);
  ASSERT_TRUE(batch.ok()) << batch.status();
  for (const InputWindow& window : (*batch)->windows) {
    EXPECT_EQ(window.height, 0.5f);
    EXPECT_EQ(window.width, 1.0f);
  }
  EXPECT_EQ((*batch)->windows.size(), 4u);
}

TEST(InputPipelineTest, MayBeDestroyedWhileItMakesBatches) {
  const auto source = std::make_unique<SyntheticSource>(SyntheticOptions{.num_examples = 500});
  const Sampler sampler = MakeSampler({.num_examples = 500, .batch_size = 64});
  for (int i = 0; i < 5; ++i) {
    const auto created = InputPipeline::Create(source.get(), sampler, Options({0}, 4, 4)).value();
    InputPipeline& pipeline = *created;
    ASSERT_TRUE(pipeline.Next(i, 0).ok());
  }
}

TEST(InputPipelineTest, PeeksAtTheNextBatchOnceItIsReady) {
  const auto source = std::make_unique<SyntheticSource>(
      SyntheticOptions{.num_examples = 40, .height = 16, .width = 16});
  const Sampler sampler = MakeSampler({.num_examples = 40, .batch_size = 12, .num_replicas = 2});
  const InputPipelineOptions options = Options({0, 1});
  const auto pipeline = *InputPipeline::Create(source.get(), sampler, options);
  EXPECT_EQ(pipeline->PeekNext(), nullptr) << "no batch has been requested";
  for (int64_t step = 0; step < 4; ++step) {
    for (const int replica : {0, 1}) {
      const InputBatch* const given = *pipeline->Next(step, replica);
      const absl::Time deadline = absl::Now() + absl::Minutes(1);
      const InputBatch* next = nullptr;
      while ((next = pipeline->PeekNext()) == nullptr) {
        ASSERT_LT(absl::Now(), deadline) << "no batch after that of step " << step << " is ready";
        absl::SleepFor(absl::Milliseconds(1));
      }
      ExpectBatch(*source, sampler, options, step, replica, given);
      ExpectBatch(*source, sampler, options, step + replica, 1 - replica, next);
      EXPECT_EQ(pipeline->PeekNext(), next);
    }
  }
  // Next returns the batch that was peeked at.
  const InputBatch* const next = pipeline->PeekNext();
  EXPECT_EQ(*pipeline->Next(4, 0), next);
}

}  // namespace
}  // namespace pushpull
