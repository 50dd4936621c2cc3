#include "worker/export/onnx_preprocessing.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/image_resize.h"
#include "common/model/model_layout.h"
#include "tests/testkit/onnx/onnx_interpreter.h"
#include "tests/worker/export/export_testing.h"
#include "tests/worker/export/onnx_testing.h"
#include "worker/data/preprocessor.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// Computes a value of the graph that only depends on the image's shape.
std::vector<double> ValueFor(const onnx::GraphProto& graph, const ImageSize& image,
                             const std::string& name) {
  const auto values = EvaluateOnnx(
      graph, {{"preprocessing/shape", IntTensor({1, 3, image.height, image.width})}}, {name});
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? values->at(name).values : std::vector<double>();
}

onnx::GraphProto DetectorGraph(const std::string& resizer) {
  const config::TrainEvalPipelineConfig config = DetectorConfig(
      "ssd_mobilenet_v2",
      "image_resizer { keep_aspect_ratio_resizer { pad_to_max_dimension: true " + resizer + " } }");
  return BuildOnnxModel(MakeInferenceModel(config)).graph();
}

TEST(OnnxPreprocessingTest, ComputesTheResizersSizesForImagesOfAnySize) {
  const onnx::GraphProto graph = DetectorGraph("min_dimension: 50 max_dimension: 100");
  const AspectRatioResize resize = {50, 100, {}};
  const int sides[] = {1, 2, 7, 13, 40, 49, 50, 51, 64, 75, 99, 100, 101, 131, 333, 1000, 4999};
  int large = 0, small = 0;
  for (const int height : sides) {
    for (const int width : sides) {
      SCOPED_TRACE(testing::Message() << height << " x " << width);
      const ImageSize size = ScaledSize(resize, {height, width});
      const ImageSize image = {height, width};
      ASSERT_THAT(ValueFor(graph, image, "preprocessing/sizes"),
                  ElementsAre(1, 3, size.height, size.width));
      ASSERT_THAT(ValueFor(graph, image, "preprocessing/pads"),
                  ElementsAre(0, 0, 0, 0, 0, 0, 100 - size.height, 100 - size.width));
      const float rows = static_cast<float>(size.height) / 100.0f;
      const float columns = static_cast<float>(size.width) / 100.0f;
      ASSERT_THAT(ValueFor(graph, image, "post_processing/window_of_corners"),
                  ElementsAre(rows, columns, rows, columns));
      ++(std::min(size.height, size.width) == 50 ? large : small);
    }
  }
  EXPECT_GT(large, 20);
  EXPECT_GT(small, 20);
}

TEST(OnnxPreprocessingTest, RoundsHalfSizesToEven) {
  const onnx::GraphProto graph = DetectorGraph("min_dimension: 60 max_dimension: 90");
  const auto size = [&](const ImageSize& image) {
    return ValueFor(graph, image, "preprocessing/content_size");
  };
  EXPECT_THAT(size({15, 180}), ElementsAre(8, 90));  // 7.5 rounds up
  EXPECT_THAT(size({180, 13}), ElementsAre(90, 6));  // 6.5 rounds down
}

TEST(OnnxPreprocessingTest, PadsNormalizedImagesWithAValuePerChannel) {
  const onnx::GraphProto graph = DetectorGraph(
      "min_dimension: 64 max_dimension: 96 per_channel_pad_value: 0 per_channel_pad_value: 102 "
      "per_channel_pad_value: 255");
  const onnx::NodeProto* const image = FindProducer(graph, "preprocessing/image");
  ASSERT_EQ(image->op_type(), "Reshape");
  EXPECT_THAT(ValueFor(graph, {1, 1}, image->input(1)), ElementsAre(0, 3, 96, 96));
  const onnx::NodeProto* const concat = FindProducer(graph, image->input(0));
  ASSERT_EQ(concat->op_type(), "Concat");
  EXPECT_THAT(Integers(*concat, "axis"), ElementsAre(1));
  ASSERT_EQ(concat->input_size(), 3);
  const onnx::NodeProto* const split =
      FindProducer(graph, FindProducer(graph, concat->input(0))->input(0));
  ASSERT_EQ(split->op_type(), "Split");
  EXPECT_THAT(Integers(*split, "axis"), ElementsAre(1));
  ASSERT_EQ(split->output_size(), 3);
  const float values[] = {-1.0f, -0.2f, 1.0f};
  for (int c = 0; c < 3; ++c) {
    const onnx::NodeProto* const pad = FindProducer(graph, concat->input(c));
    ASSERT_EQ(pad->op_type(), "Pad");
    EXPECT_EQ(pad->input(0), split->output(c));
    EXPECT_EQ(pad->input(1), "preprocessing/pads");
    EXPECT_THAT(Floats(*FindInitializer(graph, pad->input(2))),
                ElementsAre(testing::FloatNear(values[c], 1e-6f)));
  }
  const onnx::NodeProto* const content = FindProducer(graph, split->input(0));
  ASSERT_EQ(content->op_type(), "Sub");
  EXPECT_THAT(Floats(*FindInitializer(graph, content->input(1))), ElementsAre(1.0f));
}

TEST(OnnxPreprocessingTest, EqualChannelValuesNeedOnePad) {
  const onnx::GraphProto graph = DetectorGraph("min_dimension: 64 max_dimension: 96");
  const onnx::NodeProto* const pad =
      FindProducer(graph, FindProducer(graph, "preprocessing/image")->input(0));
  ASSERT_EQ(pad->op_type(), "Pad");
  EXPECT_EQ(pad->input(0), "preprocessing/content");
  EXPECT_THAT(Floats(*FindInitializer(graph, pad->input(2))), ElementsAre(-1.0f));
}

TEST(OnnxPreprocessingTest, ClipsBoxesToTheContentAndDividesByIt) {
  const onnx::GraphProto graph = DetectorGraph("min_dimension: 64 max_dimension: 96");
  const onnx::NodeProto* const boxes = FindProducer(graph, "post_processing/boxes_in_image");
  ASSERT_EQ(boxes->op_type(), "Div");
  EXPECT_EQ(boxes->input(1), "post_processing/window_of_corners");
  const onnx::NodeProto* const least = FindProducer(graph, boxes->input(0));
  ASSERT_EQ(least->op_type(), "Min");
  EXPECT_EQ(least->input(1), "post_processing/window_of_corners");
  const onnx::NodeProto* const most = FindProducer(graph, least->input(0));
  ASSERT_EQ(most->op_type(), "Max");
  EXPECT_THAT(most->input(), ElementsAre("raw_detection_boxes", "post_processing/zero"));
  // Suppression uses the boxes as decoded; only the result is tested for an area.
  EXPECT_EQ(FindProducer(graph, "post_processing/kept")->input(0), "raw_detection_boxes");
  EXPECT_EQ(FindProducer(graph, "post_processing/clipped_top_left")->input(0),
            "post_processing/boxes_in_image");
  EXPECT_EQ(FindProducer(graph, "post_processing/top_boxes")->input(0),
            "post_processing/boxes_in_image");
}

TEST(OnnxPreprocessingTest, AFixedShapeFillsTheInput) {
  const onnx::GraphProto graph =
      BuildOnnxModel(MakeInferenceModel(DetectorConfig("ssd_mobilenet_v2"))).graph();
  EXPECT_THAT(ValueFor(graph, {31, 47}, "preprocessing/sizes"), ElementsAre(1, 3, 75, 64));
  EXPECT_EQ(FindProducer(graph, "preprocessing/content_size"), nullptr);
  EXPECT_EQ(FindProducer(graph, "post_processing/boxes_in_image")->op_type(), "Clip");
}

// Random images of many sizes go through the exported preprocessing and through ours. The position
// of a source pixel is below 128, where float32 has steps of 2^-17, so along each axis the weight
// of a neighbour is off by at most 2^-18, and neighbours are at most 2 apart.
TEST(OnnxPreprocessingTest, MakesTheSameInput) {
  const std::string square =
      "image_resizer { keep_aspect_ratio_resizer { min_dimension: 48 max_dimension: 80 "
      "pad_to_max_dimension: true per_channel_pad_value: 20 per_channel_pad_value: 130 "
      "per_channel_pad_value: 240 } }";
  for (const config::TrainEvalPipelineConfig& config :
       {ClassifierConfig(), ClassifierConfig("num_channels: 3"), ClassifierConfig(square),
        DetectorConfig("ssd_mobilenet_v1"), DetectorConfig("ssd_mobilenet_v1", square)}) {
    const NetworkSpec network = BuildNetworkSpec(config.model());
    const FeatureShape& input = network.input;
    OnnxGraph graph("preprocessing");
    const std::string name = AddPreprocessing("in", network, &graph).image;
    const onnx::GraphProto exported = std::move(graph).Finish();
    for (const ImageSize& size : {ImageSize{1, 1}, ImageSize{input.height, input.width},
                                  ImageSize{2 * input.height - 1, 13}, ImageSize{31, 127},
                                  ImageSize{120, 120}, ImageSize{20, 25}}) {
      SCOPED_TRACE(testing::Message() << network.name << ", " << input.channels << " channels, "
                                      << size.height << " x " << size.width);
      const std::vector<Image> images = {RandomImage(size.height, size.width, input.channels, 1),
                                         RandomImage(size.height, size.width, input.channels, 2)};
      const auto values = EvaluateOnnx(exported, {{"in", ImageTensor(images)}}, {name});
      ASSERT_TRUE(values.ok()) << values.status();
      Preprocessor preprocessor(InputShapeOf(network));
      for (size_t n = 0; n < images.size(); ++n) {
        std::vector<float> pixels(input.num_elements());
        preprocessor.Run(ViewPixels(images[n]), {}, pixels.data());
        const OnnxTensor planes = PlanesOf(input.height, input.width, input.channels, pixels);
        EXPECT_EQ(values->at(name).shape,
                  (OnnxShape{2, input.channels, input.height, input.width}));
        ExpectEachClose("pixels", ImageOf(values->at(name), static_cast<int64_t>(n)),
                        {planes.values.begin(), planes.values.end()}, 2e-5);
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
