#include "worker/eval/detections_file.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "common/model/initializers.h"
#include "tests/testkit/damaged_records.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/example_codec.h"
#include "worker/data/image_encoder.h"
#include "worker/data/image_source_factory.h"
#include "worker/eval/coco_results_json.h"
#include "worker/eval/detection_decoder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kResultsPath[] = "/out/results.json";

config::TrainEvalPipelineConfig MakeFileConfig() {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(
      "ssd_mobilenet_v2",
      "num_classes: 3 image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
      "feature_extractor { depth_multiplier: 0.1 }");
  config::TrainEvalPipelineConfig rest;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "eval_config { num_examples: 10 batch_size: 4 metrics_set: 'pascal_voc_detection_metrics' "
      "metrics_set: 'coco_detection_metrics' } eval_input_reader { synthetic_input_reader { "
      "num_examples: 12 height: 96 width: 80 num_classes: 3 max_objects: 4 } }",
      &rest));
  config.MergeFrom(rest);
  return config;
}

class DetectionsFileTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.MakeDirectory("/out").ok()); }

  absl::StatusOr<EvaluationReport> Measure() {
    return MeasureDetectionsFile(MakeFileConfig(), "", kResultsPath, &files_, stop_);
  }

  // Writes the boxes of the data set as detections, but for those that `keep` refuses.
  template <typename Keep>
  void WriteTruth(const Keep& keep) {
    ImageSourceOptions options;
    options.num_classes = 3;
    const auto source = OpenImageSource(MakeFileConfig().eval_input_reader(0), options);
    ASSERT_TRUE(source.ok()) << source.status();
    auto writer = CocoResultsWriter::Create(&files_, kResultsPath);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int64_t i = 0; i < 10; ++i) {
      Example example;
      ASSERT_TRUE((*source)->Get(i, &example).ok());
      std::vector<DetectedBox> detections;
      for (const TruthBox& truth :
           MakeDetectionRecord("", 96, 80, example.boxes, {}).ground_truth) {
        if (keep(i, truth)) detections.push_back({truth.box, truth.label, 0.5f});
      }
      ASSERT_TRUE((*writer)->Add(i, detections).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  MemoryFileSystem files_;
  std::atomic<bool> stop_ = false;
};

// The evaluator's own export has the metrics that the evaluator reports.
TEST_F(DetectionsFileTest, AgreesWithTheEvaluationThatExportedTheFile) {
  config::TrainEvalPipelineConfig config = MakeFileConfig();
  config.mutable_eval_config()->set_export_path(kResultsPath);
  const auto evaluation = MakeEvaluation(config, "", {}, &files_, stop_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  std::vector<float> weights((*evaluation)->layout().total_elements());
  InitializeVariables((*evaluation)->layout(), 5, absl::MakeSpan(weights));
  const auto expected = (*evaluation)->Run(weights, 10, stop_, nullptr);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto report = Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->examples, expected->examples);
  ASSERT_EQ(report->scalars.size() + 2, expected->scalars.size());  // without the two losses
  bool is_trivial = true;
  for (size_t i = 0; i < report->scalars.size(); ++i) {
    const ScalarSummary& scalar = report->scalars[i];
    EXPECT_EQ(scalar.tag, expected->scalars[i].tag);
    if (std::isnan(expected->scalars[i].value)) {
      EXPECT_TRUE(std::isnan(scalar.value)) << scalar.tag;
      continue;
    }
    EXPECT_NEAR(scalar.value, expected->scalars[i].value, 1e-6) << scalar.tag;
    is_trivial = is_trivial && scalar.value <= 0;
  }
  EXPECT_FALSE(is_trivial) << "all metrics are 0";
}

TEST_F(DetectionsFileTest, TheTruthIsPerfectAndLessOfItIsNot) {
  WriteTruth([](int64_t, const TruthBox&) { return true; });
  const auto whole = Measure();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->scalars[0].tag, "PascalBoxes_Precision/mAP@0.5IOU");
  EXPECT_NEAR(whole->scalars[0].value, 1.0, 1e-6);
  EXPECT_EQ(whole->explanation, "");
  // Without false positives the AP of a class is its recall. Class 0 loses a part of its boxes.
  int kept = 0, all = 0;
  WriteTruth([&](int64_t image, const TruthBox& truth) {
    if (truth.label != 0) return true;
    ++all;
    kept += image % 2;
    return image % 2 == 1;
  });
  ASSERT_GT(kept, 0);
  ASSERT_LT(kept, all);
  const auto part = Measure();
  ASSERT_TRUE(part.ok()) << part.status();
  const double recall = static_cast<double>(kept) / all;
  EXPECT_NEAR(part->scalars[0].value, (recall + 2.0) / 3.0, 1e-6);
}

// As COCO has it, an object of 500 square pixels is small, although its box has 1600.
TEST_F(DetectionsFileTest, ARecordsAreaDecidesWhichSizeAnObjectHas) {
  Image pixels;
  pixels.height = pixels.width = 100;
  pixels.channels = 3;
  pixels.pixels.resize(100 * 100 * 3);
  std::string png, records;
  ASSERT_TRUE(EncodePng(pixels, &png).ok());
  AnnotatedImage image{"a.png", "1", 100, 100, std::nullopt, "", {}};
  image.objects.emplace_back();
  image.objects[0].box = {0.1f, 0.1f, 0.5f, 0.5f};
  image.objects[0].box.area = 500;
  const auto example = EncodeExample(image, png);
  ASSERT_TRUE(example.ok()) << example.status();
  AppendRecord(*example, &records);
  const TestFolder folder;
  auto writer = CocoResultsWriter::Create(&files_, kResultsPath);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Add(0, {{{10, 10, 50, 50}, 0, 1.0f}}).ok());
  ASSERT_TRUE((*writer)->Finish().ok());

  config::TrainEvalPipelineConfig config = MakeFileConfig();
  config.mutable_eval_input_reader(0)->mutable_tf_record_input_reader()->add_input_path(
      folder.Write("area.record", records));
  const auto report = MeasureDetectionsFile(config, "", kResultsPath, &files_, stop_);
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, double> values;
  for (const ScalarSummary& scalar : report->scalars) values[scalar.tag] = scalar.value;
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP (small)"), 1, 1e-6);
  EXPECT_TRUE(std::isnan(values.at("DetectionBoxes_Precision/mAP (medium)")));
}

TEST_F(DetectionsFileTest, ExplainsAFileWithoutDetections) {
  WriteTruth([](int64_t, const TruthBox&) { return false; });
  const auto report = Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->scalars[0].value, 0.0);
  EXPECT_THAT(report->explanation, HasSubstr("nothing was detected on 10 images"));
}

TEST_F(DetectionsFileTest, NamesBadFilesAndStops) {
  EXPECT_EQ(Measure().status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(files_, kResultsPath,
                                  R"([{"image_id": 10, "category_id": 1, "score": 1,
                                       "bbox": [0, 0, 1, 1]}])")
                  .ok());
  // The data set has 12 examples, of which 10 are evaluated.
  EXPECT_THAT(std::string(Measure().status().message()),
              HasSubstr("/out/results.json, result 0: image_id is 10, expected 0 to 9, the number "
                        "of an example of eval_input_reader, of which eval_config.num_examples"));
  ASSERT_TRUE(WriteFileAtomically(files_, kResultsPath, "[]").ok());
  stop_ = true;
  EXPECT_EQ(Measure().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(DetectionsFileTest, OpeningTheDataEndsWhenItIsStopped) {
  const DamagedRecords records;
  config::TrainEvalPipelineConfig config = MakeFileConfig();
  *config.mutable_eval_input_reader(0) = records.Reader();
  const auto measure = [&] {
    return MeasureDetectionsFile(config, "", kResultsPath, &files_, stop_).status().code();
  };
  EXPECT_EQ(measure(), absl::StatusCode::kDataLoss);
  stop_ = true;
  EXPECT_EQ(measure(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace pushpull
