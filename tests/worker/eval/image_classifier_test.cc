#include "worker/eval/image_classifier.h"

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/model_layout.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/eval/eval_testing.h"
#include "worker/data/image_source_factory.h"
#include "worker/eval/classifier_evaluation.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class ImageClassifierTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.MakeDirectory("/run").ok());
    TinyCheckpoint checkpoint;
    for (const uint64_t step : {5, 9}) {
      checkpoint.step = step;
      checkpoint.weights_seed = step;
      ASSERT_TRUE(PublishTiny(files_, "/run", BuildVariableLayout(config_), checkpoint).ok());
    }
    auto source =
        OpenImageSource(config_.eval_input_reader(0),
                        {.data_dir = "", .num_classes = 10, .field_name = "eval_input_reader"});
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  absl::StatusOr<std::unique_ptr<ImageClassifier>> Load(const TrainedNetworkOptions& options) {
    return ImageClassifier::Load(files_, "/run", config_, options);
  }
  Example ExampleAt(int64_t index) {
    Example example;
    EXPECT_TRUE(source_->Get(index, &example).ok());
    return example;
  }

  MemoryFileSystem files_;
  config::TrainEvalPipelineConfig config_ = TinyConfig();
  std::unique_ptr<ImageSource> source_;
};

TEST_F(ImageClassifierTest, ReturnsTheMostProbableClassesFirst) {
  const auto newest = Load({});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)->step(), 9);
  const auto all = (*newest)->Classify(ExampleAt(0).image, "a.png", 100);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 10u);
  double sum = 0.0;
  std::vector<bool> seen(10);
  for (size_t i = 0; i < all->size(); ++i) {
    sum += (*all)[i].probability;
    seen.at((*all)[i].label) = true;
    if (i > 0) {
      EXPECT_LE((*all)[i].probability, (*all)[i - 1].probability);
    }
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_EQ(seen, std::vector<bool>(10, true));
  const auto three = (*newest)->Classify(ExampleAt(0).image, "a.png", 3);
  ASSERT_EQ(three->size(), 3u);
  EXPECT_EQ((*three)[2].label, (*all)[2].label);
  const auto older = Load({.step = 5});
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_NE((*older)->Classify(ExampleAt(0).image, "a.png", 1)->front().probability,
            all->front().probability);
}

// The evaluator computes the same from batches.
TEST_F(ImageClassifierTest, AgreesWithTheAccuracyAndLossOfTheEvaluator) {
  const auto classifier = Load({});
  ASSERT_TRUE(classifier.ok()) << classifier.status();
  const int64_t examples = config_.eval_config().num_examples();
  int64_t correct = 0;
  double loss = 0.0;
  for (int64_t i = 0; i < examples; ++i) {
    const Example example = ExampleAt(i * source_->size() / examples);
    const auto classes = (*classifier)->Classify(example.image, "a.png", 10);
    ASSERT_TRUE(classes.ok()) << classes.status();
    correct += classes->front().label == example.label;
    for (const ClassProbability& found : *classes) {
      if (found.label == example.label) loss -= std::log(found.probability);
    }
  }
  const std::atomic<bool> stop = false;
  const auto evaluation = ClassifierEvaluation::Create(config_, "", {}, stop);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  const auto metrics =
      (*evaluation)->Measure(TinyWeights(BuildVariableLayout(config_), 9), 9, stop);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_NEAR(static_cast<double>(correct) / static_cast<double>(examples), metrics->accuracy,
              1e-12);
  EXPECT_NEAR(loss / static_cast<double>(examples), metrics->loss, 1e-4 * metrics->loss);
}

TEST_F(ImageClassifierTest, WarnsThatTheModelHasDiverged) {
  const VariableLayout layout = BuildVariableLayout(config_);
  CheckpointManifest manifest;
  manifest.run_id = TinyCheckpoint().run_id;
  manifest.epoch = 1;
  manifest.step = 11;
  const std::vector<float> diverged(layout.total_elements(), std::nanf(""));
  ASSERT_EQ(PublishOneShard(files_, "/run", layout, manifest, diverged, {}), absl::OkStatus());
  const auto classifier = Load({});
  ASSERT_TRUE(classifier.ok()) << classifier.status();
  const WarningSink sink;
  const auto classes = (*classifier)->Classify(ExampleAt(0).image, "a.png", 5);
  ASSERT_TRUE(classes.ok()) << classes.status();
  EXPECT_TRUE(std::isnan((*classes)[0].probability));
  EXPECT_EQ(sink.Count("a.png: the scores of the network are not all finite"), 1);
  EXPECT_EQ(sink.Count("the model of step 11 has diverged"), 1);
  const auto older = Load({.step = 9});
  ASSERT_TRUE((*older)->Classify(ExampleAt(0).image, "b.png", 5).ok());
  EXPECT_EQ(sink.Count("b.png"), 0);
}

TEST_F(ImageClassifierTest, NamesTheReasonIfNothingCanBeLoaded) {
  EXPECT_THAT(std::string(Load({.step = 7}).status().message()),
              HasSubstr("no checkpoint of step 7 in /run; there are those of steps 5, 9"));
  EXPECT_EQ(Load({.use_moving_averages = true}).status().code(), absl::StatusCode::kNotFound);
  config_.mutable_model()->mutable_classifier()->set_num_classes(4);
  EXPECT_FALSE(Load({}).ok());
  config_ = MakeSsdTestConfig("ssd_mobilenet_v1", "num_classes: 3");
  EXPECT_THAT(std::string(Load({}).status().message()),
              HasSubstr("is a detector, expected a classifier"));
}

}  // namespace
}  // namespace pushpull
