#include "worker/export/onnx_preprocessing.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/image_resize.h"
#include "tests/worker/export/export_testing.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// Computes the values that only depend on the image's shape: short rows of integers or float32. A
// row of one element is broadcast.
class ShapeEvaluator {
 public:
  ShapeEvaluator(const onnx::GraphProto& graph, const ImageSize& image)
      : graph_(graph), shape_({1, 3, float(image.height), float(image.width)}) {}

  std::vector<float> Value(const std::string& name) const {
    if (const onnx::TensorProto* const constant = FindInitializer(graph_, name)) {
      if (constant->data_type() == onnx::TensorProto::FLOAT) return Floats(*constant);
      const auto* const begin = reinterpret_cast<const int64_t*>(constant->raw_data().data());
      return {begin, begin + constant->raw_data().size() / sizeof(int64_t)};
    }
    const onnx::NodeProto* const node = FindProducer(graph_, name);
    if (node == nullptr) {
      ADD_FAILURE() << "no node produces " << name;
      return {};
    }
    if (node->op_type() == "Shape") return shape_;
    std::vector<std::vector<float>> inputs;
    for (const std::string& input : node->input()) inputs.push_back(Value(input));
    return Compute(*node, inputs);
  }

 private:
  using Row = std::vector<float>;

  static Row Compute(const onnx::NodeProto& node, const std::vector<Row>& in) {
    const std::string& operation = node.op_type();
    if (operation == "Cast") return in[0];
    if (operation == "Slice") {
      return {in[0].begin() + int(in[1][0]), in[0].begin() + int(in[2][0])};
    }
    if (operation == "Concat") {
      Row row;
      for (const Row& part : in) row.insert(row.end(), part.begin(), part.end());
      return row;
    }
    if (operation == "ReduceMin") return {*std::min_element(in[0].begin(), in[0].end())};
    if (operation == "ReduceMax") return {*std::max_element(in[0].begin(), in[0].end())};
    size_t size = 0;
    for (const Row& row : in) size = std::max(size, row.size());
    Row row;
    for (size_t i = 0; i < size; ++i) {
      const auto at = [&](size_t input) { return in[input][in[input].size() == 1 ? 0 : i]; };
      row.push_back(Element(operation, at));
    }
    return row;
  }

  template <typename At>
  static float Element(const std::string& operation, const At& at) {
    if (operation == "Round") return std::nearbyint(at(0));
    if (operation == "Sub") return at(0) - at(1);
    if (operation == "Mul") return at(0) * at(1);
    if (operation == "Div") return at(0) / at(1);
    if (operation == "Max") return std::max(at(0), at(1));
    if (operation == "Greater") return at(0) > at(1);
    if (operation == "Where") return at(0) != 0.0f ? at(1) : at(2);
    ADD_FAILURE() << operation << " of shapes is not supported";
    return 0.0f;
  }

  const onnx::GraphProto& graph_;
  const std::vector<float> shape_;
};

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
      const ShapeEvaluator evaluator(graph, {height, width});
      ASSERT_THAT(evaluator.Value("preprocessing/sizes"),
                  ElementsAre(1, 3, size.height, size.width));
      ASSERT_THAT(evaluator.Value("preprocessing/pads"),
                  ElementsAre(0, 0, 0, 0, 0, 0, 100 - size.height, 100 - size.width));
      const float rows = static_cast<float>(size.height) / 100.0f;
      const float columns = static_cast<float>(size.width) / 100.0f;
      ASSERT_THAT(evaluator.Value("post_processing/window_of_corners"),
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
    return ShapeEvaluator(graph, image).Value("preprocessing/content_size");
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
  EXPECT_THAT(ShapeEvaluator(graph, {1, 1}).Value(image->input(1)), ElementsAre(0, 3, 96, 96));
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
  EXPECT_THAT(ShapeEvaluator(graph, {31, 47}).Value("preprocessing/sizes"),
              ElementsAre(1, 3, 75, 64));
  EXPECT_EQ(FindProducer(graph, "preprocessing/content_size"), nullptr);
  EXPECT_EQ(FindProducer(graph, "post_processing/boxes_in_image")->op_type(), "Clip");
}

}  // namespace
}  // namespace pushpull
