// Runs the exported post-processing alone, with chosen values of the heads, and compares it with
// ours.
#include "worker/export/onnx_detection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/base/thread_pool.h"
#include "common/model/model_layout.h"
#include "kernels/detection/anchors.h"
#include "kernels/detection/box_coder.h"
#include "tests/testkit/onnx/onnx_interpreter.h"
#include "tests/worker/export/export_testing.h"
#include "tests/worker/export/onnx_testing.h"
#include "worker/eval/detection_decoder.h"
#include "worker/export/onnx_graph.h"

namespace pushpull {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// A decoded edge is a sum of two float32 terms below 4. Scores are compared relative to 1 + their
// size.
constexpr double kDetectionTolerance = 2e-6;

// The values of the heads for a batch: for each node of OutputNodes, [N, H, W, channels].
using HeadValues = std::vector<std::vector<float>>;

class OnnxDetectionTest : public testing::Test {
 protected:
  static constexpr int64_t kImages = 3;

  OnnxDetectionTest()
      : network_(BuildNetworkSpec(DetectorConfig("ssd_mobilenet_v2").model())),
        spec_(*network_.detection) {}

  // Random values of all heads. Boxes are near their anchors, so that many overlap.
  HeadValues RandomHeads(uint64_t seed, const std::function<float(float)>& score) const {
    CounterRandom random(seed, 3);
    HeadValues heads;
    for (const int node : OutputNodes(network_)) {
      std::vector<float>& values = heads.emplace_back();
      const int64_t count = kImages * network_.nodes[node].shape.num_elements();
      const bool is_score = heads.size() % 2 == 0;
      for (int64_t i = 0; i < count; ++i) {
        const float value = 8.0f * random.NextFloat() - 4.0f;
        values.push_back(is_score ? score(value) : 2.0f * value);
      }
    }
    return heads;
  }

  // Builds the graph with the heads as its inputs. With `content_size`, the input of that name is
  // the size of the scaled image.
  onnx::ModelProto Build(bool content_size) const {
    OnnxGraph graph("post_processing");
    std::vector<std::string> nodes(network_.nodes.size());
    for (const int node : OutputNodes(network_)) {
      const FeatureShape& shape = network_.nodes[node].shape;
      nodes[node] = graph.AddInput(
          absl::StrCat("head_", node), onnx::TensorProto::FLOAT,
          {"N", int64_t{shape.channels}, int64_t{shape.height}, int64_t{shape.width}});
    }
    std::string content;
    if (content_size) {
      content = graph.AddInput("content_size", onnx::TensorProto::FLOAT, {int64_t{2}});
    }
    AddDetection(network_, nodes, content, &graph);
    onnx::ModelProto model;
    model.add_opset_import()->set_version(13);
    *model.mutable_graph() = std::move(graph).Finish();
    return model;
  }

  OnnxValues InputsOf(const HeadValues& heads) const {
    OnnxValues inputs;
    const std::vector<int> nodes = OutputNodes(network_);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const FeatureShape& shape = network_.nodes[nodes[i]].shape;
      OnnxTensor& input = inputs[absl::StrCat("head_", nodes[i])];
      input = MakeTensor(kOnnxFloat32, {kImages, shape.channels, shape.height, shape.width});
      const int64_t area = int64_t{shape.height} * shape.width;
      for (size_t at = 0; at < heads[i].size(); ++at) {
        const int64_t channel = static_cast<int64_t>(at) % shape.channels;
        const int64_t pixel = static_cast<int64_t>(at) / shape.channels % area;
        const int64_t image = static_cast<int64_t>(at) / shape.channels / area;
        input.values[(image * shape.channels + channel) * area + pixel] = heads[i][at];
      }
    }
    return inputs;
  }

  // Runs the graph and expects what DetectionDecoder gives. Returns the graph's outputs. The image
  // fills `window` of the network's input.
  OnnxValues Compare(const HeadValues& heads, const InputWindow* window = nullptr) {
    network_.detection = spec_;
    OnnxValues inputs = InputsOf(heads);
    if (window != nullptr) {
      inputs["content_size"] =
          FloatTensor({2}, {window->height * static_cast<float>(network_.input.height),
                            window->width * static_cast<float>(network_.input.width)});
    }
    const auto outputs = RunOnnx(Build(window != nullptr), inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    std::vector<const float*> pointers;
    for (const std::vector<float>& values : heads) pointers.push_back(values.data());
    ThreadPool pool(1);
    const std::vector<InputWindow> windows(kImages, window == nullptr ? InputWindow() : *window);
    const auto expected = DetectionDecoder(spec_).Decode(pointers, windows, &pool);
    for (int64_t n = 0; n < kImages; ++n) {
      SCOPED_TRACE(testing::Message() << "image " << n);
      const std::vector<DetectedBox> found = DetectionsOf(*outputs, n);
      EXPECT_EQ(found.size(), expected[n].size());
      for (size_t i = 0; i < std::min(found.size(), expected[n].size()); ++i) {
        const Detection& wanted = expected[n][i];
        const BoundingBox& box = wanted.box;
        const double apart =
            Apart(found[i], {{box.ymin, box.xmin, box.ymax, box.xmax}, wanted.label, wanted.score});
        EXPECT_LE(apart, kDetectionTolerance) << "row " << i;
        if (apart > kDetectionTolerance) break;
      }
      count_ += expected[n].size();
    }
    return *outputs;
  }

  NetworkSpec network_;
  DetectionSpec spec_;
  size_t count_ = 0;  // detections that were compared
};

float Same(float value) { return value; }
float Halves(float value) { return 0.5f * std::round(2.0f * value); }

TEST_F(OnnxDetectionTest, FindsTheSameBoxes) {
  for (const auto converter :
       {PostProcessingSpec::ScoreConverter::kIdentity, PostProcessingSpec::ScoreConverter::kSigmoid,
        PostProcessingSpec::ScoreConverter::kSoftmax}) {
    spec_.post_processing.score_converter = converter;
    for (const float threshold : {1e-8f, 0.5f, 0.9f}) {
      for (const float logit_scale : {1.0f, 2.5f}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(converter) << ", threshold "
                                        << threshold << ", scale " << logit_scale);
        spec_.post_processing.score_threshold = threshold;
        spec_.post_processing.logit_scale = logit_scale;
        Compare(RandomHeads(1, Same));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GT(count_, 1000);
}

// Logits may be negative, and so may the threshold.
TEST_F(OnnxDetectionTest, KeepsNegativeScores) {
  spec_.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
  spec_.post_processing.score_threshold = -3.0f;
  spec_.post_processing.max_total_detections = 1000;
  const OnnxValues outputs = Compare(RandomHeads(9, Same));
  const std::vector<double>& scores = outputs.at("detection_scores").values;
  EXPECT_LT(*std::min_element(scores.begin(), scores.end()), -2.0);
}

TEST_F(OnnxDetectionTest, EveryLimitHoldsForEveryImage) {
  spec_.post_processing.max_detections_per_class = 4;
  const HeadValues heads = RandomHeads(2, Same);
  Compare(heads);
  EXPECT_GT(count_, 30);  // of 36; some boxes have no area within the image
  spec_.post_processing.max_total_detections = 7;
  Compare(heads);
  // More rows than there are scores.
  spec_.post_processing.max_total_detections = 5000;
  spec_.post_processing.max_detections_per_class = 5000;
  spec_.post_processing.iou_threshold = 1.0f;
  ASSERT_LT(spec_.num_classes * spec_.num_anchors(), 5000);
  Compare(heads);
}

TEST_F(OnnxDetectionTest, SuppressesAtTheThreshold) {
  const HeadValues heads = RandomHeads(3, Same);
  size_t last = 0;
  for (const float threshold : {0.1f, 0.4f, 0.7f}) {
    SCOPED_TRACE(threshold);
    spec_.post_processing.iou_threshold = threshold;
    spec_.post_processing.max_total_detections = 1000;
    count_ = 0;
    Compare(heads);
    EXPECT_GT(count_, last);
    last = count_;
  }
}

// Equal scores come in the order of the classes, then of the anchors; a score that equals the
// threshold is too low.
TEST_F(OnnxDetectionTest, OrdersEqualScores) {
  spec_.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
  spec_.post_processing.score_threshold = 1.5f;
  const OnnxValues outputs = Compare(RandomHeads(4, Halves));
  const std::vector<double>& scores = outputs.at("detection_scores").values;
  EXPECT_GT(count_, 100);
  EXPECT_EQ(scores[0], scores[1]);
  for (const double score : scores) EXPECT_TRUE(score == 0.0 || score > 1.5) << score;
}

TEST_F(OnnxDetectionTest, BoxesAreFractionsOfTheImageWithoutPadding) {
  for (const InputWindow& window : {InputWindow{0.6f, 1.0f}, InputWindow{1.0f, 0.25f}}) {
    Compare(RandomHeads(5, Same), &window);
  }
  EXPECT_GT(count_, 50);
}

TEST_F(OnnxDetectionTest, DropsBoxesOutsideTheImage) {
  HeadValues heads = RandomHeads(6, Same);
  for (size_t i = 0; i < heads.size(); i += 2) {
    for (size_t at = 0; at < heads[i].size(); at += 12) heads[i][at] *= 40.0f;        // centre, y
    for (size_t at = 1; at < heads[i].size(); at += 20) heads[i][at] *= 40.0f;        // centre, x
    for (size_t at = 2; at < heads[i].size(); at += 28) heads[i][at] = 16.0f * 5.0f;  // height
  }
  Compare(heads);
  EXPECT_GT(count_, 50);
}

TEST_F(OnnxDetectionTest, DropsWhatIsNotFinite) {
  HeadValues heads = RandomHeads(7, Same);
  const float odd[] = {kNan, kInfinity, -kInfinity, 1e30f};
  for (size_t i = 0; i < heads.size(); ++i) {
    const size_t step = i % 2 == 0 ? 37 : 29;  // boxes and scores of different anchors
    for (size_t at = i; at < heads[i].size(); at += step) heads[i][at] = odd[at % 4];
  }
  for (const auto converter : {PostProcessingSpec::ScoreConverter::kIdentity,
                               PostProcessingSpec::ScoreConverter::kSigmoid}) {
    SCOPED_TRACE(static_cast<int>(converter));
    spec_.post_processing.score_converter = converter;
    Compare(heads);
  }
  EXPECT_GT(count_, 50);
}

TEST_F(OnnxDetectionTest, GivesTheRawBoxesAndScores) {
  spec_.box_coder = {20.0f, 7.0f, 3.0f, 2.5f};
  spec_.post_processing.logit_scale = 2.0f;
  spec_.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kSoftmax;
  const HeadValues heads = RandomHeads(8, Same);
  const OnnxValues outputs = Compare(heads);
  const std::vector<BoundingBox> anchors = GenerateAnchors(spec_.anchors, spec_.heads);
  const size_t columns = spec_.num_classes + 1;
  for (int64_t n = 0; n < kImages; ++n) {
    std::vector<float> boxes, scores;
    for (size_t i = 0; i < heads.size(); i += 2) {
      const size_t codes = heads[i].size() / kImages, logits = heads[i + 1].size() / kImages;
      for (const float* code = &heads[i][n * codes]; code != &heads[i][0] + (n + 1) * codes;
           code += kBoxCodeSize) {
        const BoundingBox box = DecodeBox(spec_.box_coder, {code[0], code[1], code[2], code[3]},
                                          anchors.at(boxes.size() / kBoxCodeSize));
        boxes.insert(boxes.end(), {box.ymin, box.xmin, box.ymax, box.xmax});
      }
      for (const float* row = &heads[i + 1][n * logits]; row != &heads[i + 1][0] + (n + 1) * logits;
           row += columns) {
        double sum = 0.0;
        for (size_t c = 0; c < columns; ++c) sum += std::exp(row[c] / 2.0);
        for (size_t c = 0; c < columns; ++c) {
          scores.push_back(static_cast<float>(std::exp(row[c] / 2.0) / sum));
        }
      }
    }
    ExpectEachClose("boxes", ImageOf(outputs.at("raw_detection_boxes"), n), boxes,
                    kDetectionTolerance);
    ExpectEachClose("scores", ImageOf(outputs.at("raw_detection_scores"), n), scores,
                    kDetectionTolerance);
  }
}

}  // namespace
}  // namespace pushpull
