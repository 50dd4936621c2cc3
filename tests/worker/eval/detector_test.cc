#include "worker/eval/detector.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/model_layout.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/eval/eval_testing.h"
#include "worker/data/scene_source.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class DetectorTest : public testing::Test {
 protected:
  void SetUp() override {
    config_ = MakeSsdTestConfig(
        "ssd_mobilenet_v1",
        "num_classes: 3 image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
        "feature_extractor { depth_multiplier: 0.1 }");
    ASSERT_TRUE(files_.MakeDirectory("/run").ok());
    TinyCheckpoint checkpoint;
    for (const uint64_t step : {5, 9}) {
      checkpoint.step = step;
      checkpoint.weights_seed = step;
      ASSERT_TRUE(PublishTiny(files_, "/run", BuildVariableLayout(config_), checkpoint).ok());
    }
    Example example;
    ASSERT_TRUE(
        SceneSource({.height = 80, .width = 120}, MakeShapeGlyphs(3)).Get(0, &example).ok());
    image_ = example.image;
  }

  absl::StatusOr<std::unique_ptr<Detector>> Load(const TrainedNetworkOptions& options) {
    return Detector::Load(files_, "/run", config_, options);
  }

  MemoryFileSystem files_;
  config::TrainEvalPipelineConfig config_;
  Image image_;
};

TEST_F(DetectorTest, ReturnsBoxesInPixelsOfTheImage) {
  const auto newest = Load({});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)->step(), 9);
  const auto record = (*newest)->Detect(image_, "a.png");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->image_id, "a.png");
  ASSERT_FALSE(record->detections.empty());
  for (size_t i = 0; i < record->detections.size(); ++i) {
    const DetectedBox& box = record->detections[i];
    EXPECT_TRUE(0 <= box.box.ymin && box.box.ymin < box.box.ymax && box.box.ymax <= 80.0f);
    EXPECT_TRUE(0 <= box.box.xmin && box.box.xmin < box.box.xmax && box.box.xmax <= 120.0f);
    if (i > 0) {
      EXPECT_LE(box.score, record->detections[i - 1].score);
    }
  }
  const auto again = (*newest)->Detect(image_, "b.png");
  EXPECT_EQ(again->detections[0].score, record->detections[0].score);
  const auto older = Load({.step = 5});
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_NE((*older)->Detect(image_, "c.png")->detections[0].score, record->detections[0].score);
}

TEST_F(DetectorTest, NamesTheReasonIfNothingCanBeLoaded) {
  EXPECT_THAT(std::string(Load({.step = 7}).status().message()),
              HasSubstr("no checkpoint of step 7 in /run; there are those of steps 5, 9"));
  EXPECT_EQ(Load({.use_moving_averages = true}).status().code(), absl::StatusCode::kNotFound);
  config_.mutable_model()->mutable_ssd()->set_num_classes(4);
  EXPECT_FALSE(Load({}).ok());
  config_ = TinyConfig();
  EXPECT_THAT(std::string(Load({}).status().message()),
              HasSubstr("is a classifier, expected a detector"));
}

}  // namespace
}  // namespace pushpull
