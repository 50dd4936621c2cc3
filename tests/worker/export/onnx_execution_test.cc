// Runs whole exported models, from the bytes of the images to the predictions, and compares them
// with what the programs `detect` and `evaluator` compute from the same checkpoint.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "common/model/model_layout.h"
#include "kernels/detection/anchors.h"
#include "kernels/detection/box_coder.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/onnx/onnx_interpreter.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/export/export_testing.h"
#include "tests/worker/export/onnx_testing.h"
#include "worker/data/preprocessor.h"
#include "worker/eval/detector.h"
#include "worker/eval/image_classifier.h"
#include "worker/eval/trained_network.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

// The most detections that may differ per image. Rounding decides about a box whose overlap with
// another one equals the threshold, and about scores that equal the lowest one that is kept.
constexpr size_t kTies = 1;

// Returns how many elements of `a` are not in `b`.
size_t CountMissing(const std::vector<DetectedBox>& a, const std::vector<DetectedBox>& b,
                    double tolerance) {
  return std::count_if(a.begin(), a.end(), [&](const DetectedBox& one) {
    return std::none_of(b.begin(), b.end(),
                        [&](const DetectedBox& other) { return Apart(one, other) <= tolerance; });
  });
}

// A checkpoint of random weights, the model that is exported from it, and our network.
class OnnxExecutionTest : public testing::Test {
 protected:
  // Compares the complete model and the one with raw heads on two images of the size.
  void Compare(const config::TrainEvalPipelineConfig& config, const ImageSize& size,
               double tolerance, const TestCheckpoint& checkpoint = {}) {
    tolerance_ = tolerance;
    ASSERT_NO_FATAL_FAILURE(Load(config, checkpoint));
    const int channels = model_->network.input.channels;
    const std::vector<Image> images = {RandomImage(size.height, size.width, channels, 1),
                                       RandomImage(size.height, size.width, channels, 2)};
    const bool detector = model_->network.detection.has_value();
    const auto outputs = RunOnnx(BuildOnnxModel(*model_),
                                 {{detector ? "image_tensor" : "input", ImageTensor(images)}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (size_t n = 0; n < images.size(); ++n) {
      SCOPED_TRACE(testing::Message() << "image " << n);
      ASSERT_TRUE(network_->Infer(images[n]).ok());
      if (detector) {
        CompareDetector(images[n], static_cast<int64_t>(n), *outputs);
      } else {
        CompareClassifier(images[n], static_cast<int64_t>(n), *outputs);
      }
      CompareRawHeads(images[n]);
    }
  }

 private:
  void Load(const config::TrainEvalPipelineConfig& config, const TestCheckpoint& checkpoint) {
    config_ = config;
    files_ = std::make_unique<MemoryFileSystem>();
    ASSERT_TRUE(files_->MakeDirectory("/run").ok());
    PublishTestCheckpoint(*files_, "/run", BuildVariableLayout(config), checkpoint);
    auto model = LoadInferenceModel(*files_, "/run", config, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::make_unique<InferenceModel>(*std::move(model));
    auto network = TrainedNetwork::Load(*files_, "/run", config, {});
    ASSERT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
  }

  void CompareClassifier(const Image& image, int64_t n, const OnnxValues& outputs) {
    ExpectEachClose("logits", ImageOf(outputs.at("logits"), n), Heads(0), tolerance_);
    const auto classifier = ImageClassifier::Load(*files_, "/run", config_, {});
    ASSERT_TRUE(classifier.ok()) << classifier.status();
    const auto classes = (*classifier)->Classify(image, "image", 1000);
    ASSERT_TRUE(classes.ok()) << classes.status();
    std::vector<float> probabilities(classes->size());
    for (const ClassProbability& entry : *classes) {
      probabilities.at(entry.label) = static_cast<float>(entry.probability);
    }
    ExpectEachClose("probabilities", ImageOf(outputs.at("probabilities"), n), probabilities,
                    tolerance_);
  }

  void CompareDetector(const Image& image, int64_t n, const OnnxValues& outputs) {
    const DetectionSpec& spec = *network_->spec().detection;
    const std::vector<BoundingBox> anchors = GenerateAnchors(spec.anchors, spec.heads);
    const std::vector<float> codes = Heads(0);
    std::vector<float> boxes;
    for (size_t i = 0; i < anchors.size(); ++i) {
      const float* const code = &codes.at(kBoxCodeSize * i);
      const BoundingBox box =
          DecodeBox(spec.box_coder, {code[0], code[1], code[2], code[3]}, anchors[i]);
      boxes.insert(boxes.end(), {box.ymin, box.xmin, box.ymax, box.xmax});
    }
    ExpectEachClose("boxes", ImageOf(outputs.at("raw_detection_boxes"), n), boxes, tolerance_);

    const auto detector = Detector::Load(*files_, "/run", config_, {});
    ASSERT_TRUE(detector.ok()) << detector.status();
    auto record = (*detector)->Detect(image, "image");
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_GT(record->detections.size(), 5);
    const float height = static_cast<float>(image.height), width = static_cast<float>(image.width);
    for (DetectedBox& detection : record->detections) {
      PixelBox& box = detection.box;
      box = {box.ymin / height, box.xmin / width, box.ymax / height, box.xmax / width};
    }
    const std::vector<DetectedBox> found = DetectionsOf(outputs, n);
    EXPECT_LE(CountMissing(record->detections, found, tolerance_), kTies);
    EXPECT_LE(CountMissing(found, record->detections, tolerance_), kTies);
    for (size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i].score, found[i - 1].score);
  }

  void CompareRawHeads(const Image& image) {
    const NetworkSpec& spec = network_->spec();
    std::vector<float> pixels(spec.input.num_elements());
    Preprocessor(network_->input_shape()).Run(ViewPixels(image), {}, pixels.data());
    const auto outputs = RunOnnx(
        BuildRawHeadsModel(*model_),
        {{kRawInput, PlanesOf(spec.input.height, spec.input.width, spec.input.channels, pixels)}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const bool detector = spec.detection.has_value();
    for (const int part : detector ? std::vector<int>{0, 1} : std::vector<int>{0}) {
      const char* const name = !detector ? kLogits : part == 0 ? kRawBoxes : kRawScores;
      const std::vector<float> expected = Heads(part);
      ExpectEachClose(name, outputs->at(name).values, expected, tolerance_);
      const auto [least, most] = std::minmax_element(expected.begin(), expected.end());
      EXPECT_GT(*most - *least, 0.1f) << name;
    }
  }

  // Returns the values of our network's outputs in one row: those of a classifier, or the box codes
  // (part 0) or logits (part 1) of a detector's heads.
  std::vector<float> Heads(size_t part) const {
    const NetworkSpec& spec = network_->spec();
    const std::vector<int> nodes = OutputNodes(spec);
    std::vector<float> row;
    for (size_t i = part; i < nodes.size(); i += 2) {
      const float* const values = network_->outputs()[i];
      row.insert(row.end(), values, values + spec.nodes[nodes[i]].shape.num_elements());
    }
    return row;
  }

  double tolerance_ = 0.0;  // relative to 1 + the size of a value
  config::TrainEvalPipelineConfig config_;
  std::unique_ptr<MemoryFileSystem> files_;
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<TrainedNetwork> network_;
};

// Both sides have about 50 layers of float32 sums, in different orders, with and without folded
// batch norms. Measured: 2e-6.
TEST_F(OnnxExecutionTest, EveryCaseComputesTheSame) {
  for (const ExportCase& c : ExportCases()) {
    for (const ImageSize& size : {ImageSize{50, 91}, ImageSize{120, 40}}) {
      SCOPED_TRACE(testing::Message() << c.name << ", " << size.height << " x " << size.width);
      Compare(c.config, size, 2e-5);
      if (HasFailure()) return;
    }
  }
}

// Some of these networks do not bound their values by RELU_6, so more digits cancel. Measured:
// 4e-5.
TEST_F(OnnxExecutionTest, EveryTypeOfDetectorComputesTheSame) {
  for (const absl::string_view type : SsdTypeNames()) {
    SCOPED_TRACE(std::string(type));
    config::TrainEvalPipelineConfig config =
        MakeSsdTestConfig(std::string(type), "num_classes: 3 " + SsdTestSettings(type, 128));
    auto* const extractor = config.mutable_model()->mutable_ssd()->mutable_feature_extractor();
    extractor->set_depth_multiplier(0.1f);
    extractor->set_min_depth(8);
    Compare(config, {70, 90}, 2e-4);
    if (HasFailure()) return;
  }
}

// After two updates with decay 0.5, a quarter of the moving statistics is their initial value.
TEST_F(OnnxExecutionTest, CorrectsMovingStatisticsTheSame) {
  Compare(
      ClassifierConfig("feature_extractor { conv_hyperparams { activation: RELU_6 batch_norm { "
                       "decay: 0.5 scale: true epsilon: 0.001 bias_corrected_moving_statistics: "
                       "true } } }"),
      {50, 91}, 2e-5, {.step = 2, .updates = 2});
}

}  // namespace
}  // namespace pushpull
