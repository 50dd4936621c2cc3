// The contributions of a network on its data, on a device that defers its work: they are the same
// whether or not they were announced in advance.
#include "worker/train/network_gradient_source.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "tests/testkit/damaged_records.h"
#include "tests/testkit/kernels/deferred_device.h"
#include "tests/testkit/model/test_network.h"

namespace pushpull {
namespace {

config::TrainEvalPipelineConfig SmallJob() {
  auto config = MakeTestConfig(
      "num_channels: 1 image_resizer { fixed_shape_resizer { height: 32 width: 32 } } "
      "feature_extractor { depth_multiplier: 0.1 conv_hyperparams { activation: RELU_6 "
      "regularizer { l2_regularizer { weight: 0.001 } } batch_norm { decay: 0.9 } "
      "initializer { truncated_normal_initializer { stddev: 0.09 } } } }",
      "batch_size: 5 data_augmentation_options { random_horizontal_flip {} }");
  CHECK(google::protobuf::TextFormat::MergeFromString(
      "train_input_reader { synthetic_input_reader { num_examples: 40 height: 32 width: 32 "
      "num_classes: 10 } }",
      &config));
  return config;
}

class NetworkGradientSourceTest : public ::testing::TestWithParam<DeferredDevice::Uploads> {
 protected:
  NetworkGradientSourceTest()
      : config_(SmallJob()),
        layout_(BuildVariableLayout(config_)),
        told_(Open(&devices_[0])),
        plain_(Open(&devices_[1])) {
    devices_[0].SetUploads(GetParam());
    for (auto& vector : weights_) vector = *told_->AllocateVector(layout_.total_elements());
  }

  std::unique_ptr<NetworkGradientSource> Open(Device* device) {
    NetworkSourceOptions options;
    options.num_replicas = 2;
    options.compute.device = device;
    auto source = NetworkGradientSource::Create(config_, &layout_, options);
    CHECK(source.ok()) << source.status();
    return *std::move(source);
  }
  absl::Span<float> Weights(int i) {
    return {weights_[i].get(), static_cast<size_t>(layout_.total_elements())};
  }
  struct Contribution {
    std::vector<float> gradient;
    double loss = 0.0;
    uint64_t samples = 0;
    std::vector<int64_t> announced;
  };
  Contribution Compute(NetworkGradientSource* source, uint64_t position, uint32_t replica,
                       int weights) {
    Contribution result;
    result.gradient.resize(layout_.total_elements());
    const auto computed =
        source->Compute(position, replica, Weights(weights), absl::MakeSpan(result.gradient),
                        [&](int64_t first) { result.announced.push_back(first); });
    EXPECT_TRUE(computed.ok()) << computed.status();
    if (computed.ok()) {
      result.loss = computed->loss;
      result.samples = computed->samples;
    }
    return result;
  }
  // Blocks until the source can announce its next batch. Fails the test after a minute.
  static void AwaitNextInput(NetworkGradientSource* source) {
    const absl::Time limit = absl::Now() + absl::Minutes(1);
    while (source->NextInput() == nullptr && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_NE(source->NextInput(), nullptr);
  }
  // Announces a step as a pull does.
  void Tell(uint64_t position, uint32_t replica, int weights) {
    told_->StageCompute(position, replica, Weights(weights));
    const int64_t total = layout_.total_elements();
    for (int64_t first = 0; first < total; first += 5000) {
      told_->StageWeights(Weights(weights), first, std::min(first + 5000, total));
    }
  }
  void ExpectSameContribution(uint64_t position, uint32_t replica, int weights) {
    const Contribution told = Compute(told_.get(), position, replica, weights);
    const Contribution plain = Compute(plain_.get(), position, replica, weights);
    EXPECT_EQ(told.gradient, plain.gradient) << position << " " << replica;
    EXPECT_EQ(told.loss, plain.loss);
    EXPECT_EQ(told.announced, plain.announced);
  }

  const config::TrainEvalPipelineConfig config_;
  const VariableLayout layout_;
  DeferredDevice devices_[2];
  std::shared_ptr<float> weights_[2];
  std::unique_ptr<NetworkGradientSource> told_, plain_;
};

TEST(NetworkGradientSourceImagesTest, CountsTheImagesThatAreNotLeftOut) {
  config::TrainEvalPipelineConfig config = SmallJob();
  config.mutable_train_input_reader()->set_sample_1_of_n_examples(3);
  const VariableLayout layout = BuildVariableLayout(config);
  const auto source = NetworkGradientSource::Create(config, &layout, {});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->num_images(), 14) << "a third of 40, rounded up";
}

TEST(NetworkGradientSourceImagesTest, TheFlagsOfASpareMayNameMoreClonesThanABatchHasSamples) {
  const config::TrainEvalPipelineConfig config = SmallJob();
  const VariableLayout layout = BuildVariableLayout(config);
  NetworkSourceOptions options;
  options.num_replicas = 8;
  const auto source = NetworkGradientSource::Create(config, &layout, options);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<float> weights(layout.total_elements());
  std::vector<float> gradient(layout.total_elements());
  const auto compute = [&](uint32_t replica) {
    return (*source)->Compute(1, replica, absl::MakeSpan(weights), absl::MakeSpan(gradient),
                              [](int64_t) {});
  };
  EXPECT_FALSE(compute(6).ok()) << "the batch has five samples";
  (*source)->NotePart(1, {2, 3});
  const auto computed = compute(1);
  ASSERT_TRUE(computed.ok()) << computed.status();
  EXPECT_EQ(computed->samples, 3u);
}

TEST(NetworkGradientSourceImagesTest, OpeningTheDataEndsWhenItIsStopped) {
  const DamagedRecords records;
  config::TrainEvalPipelineConfig config = SmallJob();
  *config.mutable_train_input_reader() = records.Reader();
  const VariableLayout layout = BuildVariableLayout(config);
  bool stop = false;
  NetworkSourceOptions options;
  options.stopped = [&stop] { return stop; };
  const auto create = [&] {
    return NetworkGradientSource::Create(config, &layout, options).status().code();
  };
  EXPECT_EQ(create(), absl::StatusCode::kDataLoss);
  stop = true;
  EXPECT_EQ(create(), absl::StatusCode::kCancelled);
}

TEST_P(NetworkGradientSourceTest, ContributionsAreTheSameWhetherAnnouncedOrNot) {
  struct Step {
    uint64_t position;
    uint32_t replica;
    std::pair<uint64_t, uint32_t> told;
  };
  // The clone's replica, then another replica that it takes over, a step back after a server
  // restart, and announcements of steps that do not come.
  const std::vector<Step> steps = {
      {0, 0, {0, 0}}, {1, 0, {1, 0}}, {2, 0, {2, 0}}, {2, 1, {2, 1}}, {3, 0, {3, 0}},
      {3, 1, {3, 1}}, {4, 0, {4, 1}}, {4, 1, {9, 0}}, {2, 0, {5, 0}}, {2, 1, {2, 1}},
      {3, 0, {3, 0}}, {3, 0, {3, 0}}, {3, 1, {3, 1}}, {4, 0, {4, 0}}, {1, 0, {9, 0}},
      {7, 1, {9, 0}}, {8, 0, {8, 0}},
  };
  int turn = 0;
  for (const Step& step : steps) {
    const int weights = turn++ % 2;
    InitializeVariables(layout_, turn, Weights(weights));
    Tell(step.told.first, step.told.second, weights);
    ExpectSameContribution(step.position, step.replica, weights);
    AwaitNextInput(told_.get());
    AwaitNextInput(plain_.get());
  }
}

TEST_P(NetworkGradientSourceTest, StagesTheNextImagesBeforeTheyAreNeeded) {
  InitializeVariables(layout_, 1, Weights(0));
  const int64_t weights_bytes = layout_.total_elements() * 4;
  // Replica 0 has two of the five images, which are in colour.
  const int64_t block_bytes = ImageHeaderBytes(2) + 2 * 32 * 32 * 3;
  int64_t copied_first = 0;  // without anything staged
  for (uint64_t position = 0; position < 6; ++position) {
    const int64_t uploaded = devices_[0].uploaded_bytes();
    const int64_t copied = devices_[0].copied_bytes();
    // Position 3 is announced wrongly, which must keep the staged images.
    Tell(position == 3 ? 9 : position, 0, 0);
    EXPECT_EQ(devices_[0].uploaded_bytes() - uploaded, weights_bytes);
    ASSERT_EQ(told_->LoadInput(position, 0), absl::OkStatus());
    AwaitNextInput(told_.get());
    ExpectSameContribution(position, 0, 0);
    const int64_t copied_now = devices_[0].copied_bytes() - copied;
    if (position == 0) copied_first = copied_now;
    EXPECT_EQ(copied_now, position == 0 ? copied_first : copied_first - block_bytes);
    EXPECT_EQ(devices_[0].uploaded_bytes() - uploaded, weights_bytes + block_bytes);
  }
}

TEST_P(NetworkGradientSourceTest, AReplicaThatWentHomeIsNotPreparedAnyMore) {
  const auto load = [this](uint64_t position, uint32_t replica) {
    ASSERT_EQ(told_->LoadInput(position, replica), absl::OkStatus());
  };
  load(0, 0);
  load(0, 1);  // taken over
  load(1, 0);
  load(1, 1);
  load(2, 0);
  load(3, 0);  // the other clone is back
  for (uint64_t position = 4; position < 8; ++position) {
    AwaitNextInput(told_.get());
    const InputBatch* const next = told_->NextInput();
    EXPECT_EQ(next->replica, 0);
    EXPECT_EQ(next->step, position);
    load(position, 0);
  }
}

// The division of the batch of five changes: what was prepared and staged for another one is not
// used, and a part that is larger than all before it gets more memory.
TEST_P(NetworkGradientSourceTest, ContributionsFollowTheDivision) {
  InitializeVariables(layout_, 1, Weights(0));
  struct Step {
    uint64_t position;
    uint32_t replica;
    BatchPart part;
  };
  const std::vector<Step> steps = {
      {0, 0, {0, 2}}, {1, 0, {0, 2}}, {2, 0, {0, 5}}, {3, 0, {0, 5}}, {4, 1, {4, 1}},
      {5, 1, {1, 4}}, {5, 7, {0, 1}}, {6, 1, {1, 4}}, {7, 1, {3, 2}}, {7, 1, {2, 3}},
  };
  for (const Step& step : steps) {
    for (NetworkGradientSource* source : {told_.get(), plain_.get()}) {
      source->NotePart(step.replica, step.part);
    }
    Tell(step.position, step.replica, 0);
    ExpectSameContribution(step.position, step.replica, 0);
    AwaitNextInput(told_.get());
    DeferredDevice device;
    const auto fresh = Open(&device);
    fresh->NotePart(step.replica, step.part);
    const Contribution expected = Compute(fresh.get(), step.position, step.replica, 0);
    const Contribution again = Compute(plain_.get(), step.position, step.replica, 0);
    EXPECT_EQ(again.gradient, expected.gradient) << step.position << " " << step.replica;
    EXPECT_EQ(again.samples, static_cast<uint64_t>(step.part.samples));
  }
  told_->NotePart(1, {3, 3});
  EXPECT_EQ(told_->LoadInput(8, 1).code(), absl::StatusCode::kInternal) << "beyond the batch";
}

INSTANTIATE_TEST_SUITE_P(Uploads, NetworkGradientSourceTest,
                         ::testing::Values(DeferredDevice::Uploads::kWhenAwaited,
                                           DeferredDevice::Uploads::kAtOnce,
                                           DeferredDevice::Uploads::kBehindComputing,
                                           DeferredDevice::Uploads::kNothingIsDeferred));

}  // namespace
}  // namespace pushpull
