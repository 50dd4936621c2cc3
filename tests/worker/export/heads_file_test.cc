#include "worker/export/heads_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "kernels/detection/anchors.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/worker/export/export_testing.h"

namespace pushpull {
namespace {

using nlohmann::json;

json HeadsOf(const config::TrainEvalPipelineConfig& config,
             const std::vector<std::string>& class_names = {}) {
  const std::string contents = EncodeHeadsFile(MakeInferenceModel(config), class_names);
  EXPECT_EQ(contents.back(), '\n');
  return json::parse(contents);
}

TEST(HeadsFileTest, LiesBesideTheModel) {
  EXPECT_EQ(HeadsFilePath("a.onnx/model.onnx"), "a.onnx/model.heads.json");
  EXPECT_EQ(HeadsFilePath("model.v2.onnx"), "model.v2.heads.json");
}

TEST(HeadsFileTest, DescribesADetector) {
  const auto config = DetectorConfig(
      "ssd_mobilenet_v1",
      "post_processing { batch_non_max_suppression { score_threshold: 0.25 iou_threshold: 0.5 "
      "max_detections_per_class: 7 max_total_detections: 50 } score_converter: SOFTMAX "
      "logit_scale: 4 } box_coder { faster_rcnn_box_coder { y_scale: 20 width_scale: 2.5 } }");
  const json heads = HeadsOf(config, {"cell", "", "plate"});
  const InferenceModel model = MakeInferenceModel(config);
  EXPECT_EQ(heads["format"], "pushpull-heads");
  EXPECT_EQ(heads["format_version"], 1);
  EXPECT_EQ(heads["model"], model.network.name);
  EXPECT_EQ(heads["step"], 7);
  EXPECT_EQ(heads["weights"], "raw");
  EXPECT_EQ(heads["run_id"], "run");
  EXPECT_EQ(heads["input"], json::parse(R"({"name": "input", "shape": [1, 3, 75, 64],
                                            "channels": "RGB"})"));
  EXPECT_EQ(heads["preprocessing"],
            json({{"resize", "fixed"}, {"scale", 2.0 / 255.0}, {"offset", -1.0}}));
  EXPECT_EQ(heads["num_classes"], 3);
  EXPECT_EQ(heads["class_names"], json({"cell", "", "plate"}));
  EXPECT_EQ(heads["boxes"], json::parse(R"({"name": "box_encodings", "y_scale": 20.0,
      "x_scale": 10.0, "height_scale": 5.0, "width_scale": 2.5})"));
  EXPECT_EQ(heads["scores"], json::parse(R"({"name": "class_predictions_with_background",
      "score_converter": "SOFTMAX", "logit_scale": 4.0})"));
  EXPECT_EQ(heads["suppression"], json::parse(R"({"score_threshold": 0.25, "iou_threshold": 0.5,
      "max_detections_per_class": 7, "max_total_detections": 50})"));
  const std::vector<BoundingBox> anchors =
      GenerateAnchors(model.network.detection->anchors, model.network.detection->heads);
  ASSERT_EQ(heads["anchors"].size(), anchors.size());
  for (size_t i = 0; i < anchors.size(); ++i) {
    const BoundingBox& a = anchors[i];
    EXPECT_EQ(heads["anchors"][i].get<std::vector<float>>(),
              (std::vector<float>{a.ymin, a.xmin, a.ymax, a.xmax}));
  }
}

TEST(HeadsFileTest, NamesTheScoreConverter) {
  for (const char* name : {"IDENTITY", "SIGMOID", "SOFTMAX"}) {
    const json heads = HeadsOf(DetectorConfig(
        "ssd_mobilenet_v1", std::string("post_processing { score_converter: ") + name + " }"));
    EXPECT_EQ(heads["scores"]["score_converter"], name);
  }
}

TEST(HeadsFileTest, DescribesAClassifier) {
  const json heads = HeadsOf(ClassifierConfig());
  EXPECT_EQ(heads["input"], json::parse(R"({"name": "input", "shape": [1, 1, 40, 33],
                                            "channels": "grey"})"));
  EXPECT_EQ(heads["num_classes"], 5);
  for (const char* field : {"class_names", "boxes", "scores", "suppression", "anchors"}) {
    EXPECT_FALSE(heads.contains(field)) << field;
  }
}

TEST(HeadsFileTest, DescribesThePadding) {
  const std::string resizer =
      "image_resizer { keep_aspect_ratio_resizer { min_dimension: 48 max_dimension: 80 "
      "pad_to_max_dimension: true per_channel_pad_value: 1 per_channel_pad_value: 2 "
      "per_channel_pad_value: 3.5 } }";
  const json heads = HeadsOf(ClassifierConfig("num_channels: 3 " + resizer));
  EXPECT_EQ(heads["preprocessing"], json({{"resize", "keep_aspect_ratio"},
                                          {"min_dimension", 48},
                                          {"max_dimension", 80},
                                          {"pad_value", {1.0, 2.0, 3.5}},
                                          {"scale", 2.0 / 255.0},
                                          {"offset", -1.0}}));
}

TEST(HeadsFileTest, KnowsTheFilesOfTheExporter) {
  MemoryFileSystem files;
  const std::string path = "/model.heads.json";
  EXPECT_TRUE(CheckOwnHeadsFile(files, path).ok()) << "no file";
  const std::string own = EncodeHeadsFile(MakeInferenceModel(ClassifierConfig()), {"caf\xe9"});
  ASSERT_TRUE(WriteFileAtomically(files, path, own).ok());
  EXPECT_TRUE(CheckOwnHeadsFile(files, path).ok());
  for (const std::string& other :
       {std::string(), own.substr(0, own.size() / 2), std::string(R"({"heads": 4})"),
        std::string(R"({"format": "pushpull"})"), std::string(R"({"format": 1})"),
        std::string(R"({"notes": {"format": "pushpull-heads"}})"),
        std::string(R"(["format", "pushpull-heads"])"), std::string("\xff\x00", 2)}) {
    ASSERT_TRUE(WriteFileAtomically(files, path, other).ok());
    const absl::Status refused = CheckOwnHeadsFile(files, path);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << other << ": " << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(path));
  }
}

// A folder's name may have any bytes, but JSON is UTF-8.
TEST(HeadsFileTest, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(HeadsOf(ClassifierConfig(), {"caf\xe9"})["class_names"][0], "caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace pushpull
