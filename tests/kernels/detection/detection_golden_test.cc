// Compares anchors, matching, losses with gradients, mining and post-processing with an independent
// implementation, tests/reference/detection_golden.py.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "kernels/detection/anchors.h"
#include "kernels/detection/post_processing.h"
#include "kernels/detection/ssd_loss.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull {
namespace {

constexpr int kGoldenClasses = 3;

std::vector<double> Noise(size_t count, int seed, double amplitude) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = amplitude * std::sin(12.9898 * (static_cast<double>(i) + 1.0) + 78.233 * seed);
  }
  return values;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

DetectionSpec MakeSpec() {
  DetectionSpec spec;
  spec.num_classes = kGoldenClasses;
  auto& anchors = spec.anchors.emplace<SsdAnchorSpec>();
  anchors.num_layers = 3;
  anchors.aspect_ratios = {1.0f, 2.0f, 0.5f};
  const int sizes[][3] = {{5, 4, 3}, {3, 3, 4}, {2, 1, 4}};
  for (const auto& [height, width, anchors] : sizes) {
    DetectionHead head;
    head.height = height;
    head.width = width;
    head.anchors_per_location = anchors;
    spec.heads.push_back(head);
  }
  return spec;
}

void ApplySettings(const nlohmann::json& settings, DetectionSpec* spec) {
  DetectionLossSpec& loss = spec->loss;
  const std::string classification = settings["classification"];
  loss.classification = DetectionLossSpec::Classification::kSigmoid;
  if (classification == "softmax") {
    loss.classification = DetectionLossSpec::Classification::kSoftmax;
  }
  if (classification == "focal") {
    loss.classification = DetectionLossSpec::Classification::kSigmoidFocal;
  }
  loss.logit_scale = settings["logit_scale"];
  loss.focal_gamma = settings["gamma"];
  if (!settings["alpha"].is_null()) loss.focal_alpha = settings["alpha"].get<float>();
  if (settings["localization"] == "l2") {
    loss.localization = DetectionLossSpec::Localization::kL2;
  }
  loss.smooth_l1_delta = settings["delta"];
  loss.classification_weight = settings["classification_weight"];
  loss.localization_weight = settings["localization_weight"];
  loss.normalize_loss_by_num_matches = settings["normalize"];
  loss.normalize_loc_loss_by_codesize = settings["codesize"];
  loss.encode_background_as_zeros = settings["zeros"];
  loss.negative_class_weight = settings["negative_weight"];
  spec->matcher.matched_threshold = settings["matched"];
  spec->matcher.unmatched_threshold = settings["unmatched"];
  spec->matcher.negatives_lower_than_unmatched = settings["lower"];
  spec->matcher.force_match_for_each_row = settings["force"];
  spec->matcher.ignore_thresholds = settings["ignore"];
  if (settings["miner"].is_null()) return;
  const nlohmann::json& miner = settings["miner"];
  HardExampleMinerSpec& out = loss.hard_example_miner.emplace();
  out.num_hard_examples = miner["num_hard_examples"];
  out.iou_threshold = miner["iou_threshold"];
  out.max_negatives_per_positive = miner["per_positive"];
  out.min_negatives_per_image = miner["minimum"];
  const std::string type = miner["loss_type"];
  out.loss_type = HardExampleMinerSpec::LossType::kBoth;
  if (type == "classification") out.loss_type = HardExampleMinerSpec::LossType::kClassification;
  if (type == "localization") out.loss_type = HardExampleMinerSpec::LossType::kLocalization;
}

class DetectionGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(PUSHPULL_SOURCE_DIR "/tests/golden/detection.json");
    golden_ = nlohmann::json::parse(file);
    ASSERT_EQ(golden_["objects"].size(), 3u);
    ASSERT_EQ(golden_["cases"].size(), 9u);
    ASSERT_EQ(golden_["post_processing"].size(), 3u);
    anchors_ = GenerateAnchors(MakeSpec().anchors, MakeSpec().heads);
    for (const nlohmann::json& image : golden_["objects"]) {
      std::vector<LabeledBox>& boxes = objects_.emplace_back();
      for (const nlohmann::json& o : image) boxes.push_back({{o[0], o[1], o[2], o[3]}, o[4], o[5]});
    }
    for (const std::vector<LabeledBox>& boxes : objects_) {
      flat_objects_.insert(flat_objects_.end(), boxes.begin(), boxes.end());
      first_object_.push_back(static_cast<int32_t>(flat_objects_.size()));
    }
  }

  // Returns for each entry of the concatenated tensors of the heads its index in a list [samples,
  // anchors, columns].
  std::vector<size_t> PlacesByHead(const DetectionSpec& spec, int64_t columns) const {
    std::vector<size_t> places;
    int64_t first = 0;
    for (const DetectionHead& head : spec.heads) {
      for (size_t s = 0; s < objects_.size(); ++s) {
        const int64_t row = static_cast<int64_t>(s * anchors_.size()) + first;
        for (int64_t i = 0; i < head.num_anchors() * columns; ++i) {
          places.push_back(static_cast<size_t>(row * columns + i));
        }
      }
      first += head.num_anchors();
    }
    return places;
  }

  template <typename T>
  void CheckLoss(const std::string& name, const nlohmann::json& golden, double tolerance) {
    SCOPED_TRACE(name);
    DetectionSpec spec = MakeSpec();
    ApplySettings(golden["settings"], &spec);
    const size_t codes_size = objects_.size() * anchors_.size() * 4;
    const size_t scores_size = objects_.size() * anchors_.size() * (kGoldenClasses + 1);
    const std::vector<double> codes = Noise(codes_size, 1, 2.0);
    const std::vector<double> scores = Noise(scores_size, 2, 3.0);
    const std::vector<size_t> code_places = PlacesByHead(spec, 4);
    const std::vector<size_t> score_places = PlacesByHead(spec, kGoldenClasses + 1);
    std::vector<T> typed_codes, typed_scores;
    for (const size_t place : code_places) typed_codes.push_back(static_cast<T>(codes[place]));
    for (const size_t place : score_places) typed_scores.push_back(static_cast<T>(scores[place]));
    std::vector<T> dcodes(codes_size, T(777));
    std::vector<T> dscores(scores_size, T(777));
    std::vector<SsdHeadTensors<T>> heads;
    int64_t rows = 0;
    for (const DetectionHead& head : spec.heads) {
      heads.push_back({head.num_anchors(), typed_codes.data() + rows * 4,
                       typed_scores.data() + rows * (kGoldenClasses + 1), dcodes.data() + rows * 4,
                       dscores.data() + rows * (kGoldenClasses + 1)});
      rows += head.num_anchors() * static_cast<int64_t>(objects_.size());
    }
    SsdLossArguments<T> arguments;
    arguments.spec = &spec;
    arguments.samples = static_cast<int64_t>(objects_.size());
    arguments.num_anchors = static_cast<int64_t>(anchors_.size());
    arguments.anchors = anchors_.data();
    arguments.objects = flat_objects_.data();
    arguments.first_object = first_object_.data();
    arguments.heads = heads;
    arguments.wants_gradient = true;
    const SsdLossResult result = SsdLossOnCpu<T>(arguments, SerialLoop);

    int64_t mined = 0;
    for (const int64_t count : golden["mined"]) mined += count;
    const int64_t ignored = result.ignored_anchors;
    EXPECT_LE(result.mined_positives + result.mined_negatives, mined);
    EXPECT_GE(result.mined_positives + result.mined_negatives, mined - ignored);
    const auto near = [tolerance](double got, double want) {
      EXPECT_NEAR(got, want, tolerance * std::max(1.0, std::abs(want)));
    };
    near(result.classification_loss, golden["classification_loss"]);
    near(result.localization_loss, golden["localization_loss"]);
    for (int k = 0; k < 3; ++k) {
      std::vector<double> got_codes(codes_size), got_scores(scores_size);
      for (size_t i = 0; i < codes_size; ++i) got_codes[code_places[i]] = dcodes[i];
      for (size_t i = 0; i < scores_size; ++i) got_scores[score_places[i]] = dscores[i];
      near(Dot(got_codes, Noise(codes_size, 3 + k, 1.0)), golden["dcodes"][k]);
      near(Dot(got_scores, Noise(scores_size, 3 + k, 1.0)), golden["dscores"][k]);
    }
    arguments.wants_gradient = false;
    const SsdLossResult loss_only = SsdLossOnCpu<T>(arguments, SerialLoop);
    EXPECT_EQ(loss_only.classification_loss, result.classification_loss);
  }

  nlohmann::json golden_;
  std::vector<BoundingBox> anchors_;
  std::vector<std::vector<LabeledBox>> objects_;
  std::vector<LabeledBox> flat_objects_;
  std::vector<int32_t> first_object_ = {0};
};

TEST_F(DetectionGoldenTest, AnchorsEqualTheReference) {
  const nlohmann::json& want = golden_["anchors"];
  ASSERT_EQ(anchors_.size(), want.size());
  for (size_t a = 0; a < anchors_.size(); ++a) {
    const BoundingBox& got = anchors_[a];
    EXPECT_NEAR(got.ymin, want[a][0], 1e-6) << a;
    EXPECT_NEAR(got.xmin, want[a][1], 1e-6) << a;
    EXPECT_NEAR(got.ymax, want[a][2], 1e-6) << a;
    EXPECT_NEAR(got.xmax, want[a][3], 1e-6) << a;
  }
}

TEST_F(DetectionGoldenTest, MatchesEqualTheReference) {
  for (const auto& [name, golden] : golden_["cases"].items()) {
    SCOPED_TRACE(name);
    DetectionSpec spec = MakeSpec();
    ApplySettings(golden["settings"], &spec);
    for (size_t s = 0; s < objects_.size(); ++s) {
      EXPECT_EQ(MatchAnchors(spec.matcher, anchors_, objects_[s]),
                golden["matches"][s].get<std::vector<int>>())
          << "image " << s;
    }
  }
}

TEST_F(DetectionGoldenTest, LossesAndGradientsEqualTheReferenceInDouble) {
  for (const auto& [name, golden] : golden_["cases"].items()) {
    CheckLoss<double>(name, golden, 1e-6);
  }
}

TEST_F(DetectionGoldenTest, LossesAndGradientsEqualTheReferenceInFloat) {
  for (const auto& [name, golden] : golden_["cases"].items()) {
    CheckLoss<float>(name, golden, 1e-4);
  }
}

TEST_F(DetectionGoldenTest, PostProcessingEqualsTheReference) {
  const std::vector<double> codes = Noise(anchors_.size() * 4, 6, 2.0);
  const std::vector<double> scores = Noise(anchors_.size() * (kGoldenClasses + 1), 7, 3.0);
  const std::vector<float> float_codes(codes.begin(), codes.end());
  const std::vector<float> float_scores(scores.begin(), scores.end());
  for (const nlohmann::json& golden : golden_["post_processing"]) {
    const nlohmann::json& settings = golden["settings"];
    DetectionSpec spec = MakeSpec();
    PostProcessingSpec& post = spec.post_processing;
    if (settings["converter"] == "sigmoid") {
      post.score_converter = PostProcessingSpec::ScoreConverter::kSigmoid;
    } else if (settings["converter"] == "softmax") {
      post.score_converter = PostProcessingSpec::ScoreConverter::kSoftmax;
    }
    post.logit_scale = settings["logit_scale"];
    post.score_threshold = settings["score_threshold"];
    post.iou_threshold = settings["iou_threshold"];
    post.max_detections_per_class = settings["per_class"];
    post.max_total_detections = settings["total"];
    SCOPED_TRACE(settings["converter"].get<std::string>());
    const std::vector<Detection> got = PostProcess(spec, anchors_, float_codes, float_scores);
    const nlohmann::json& want = golden["detections"];
    ASSERT_FALSE(want.empty());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].label, want[i][0]) << i;
      EXPECT_NEAR(got[i].score, want[i][1], 1e-5) << i;
      EXPECT_NEAR(got[i].box.ymin, want[i][2], 1e-5) << i;
      EXPECT_NEAR(got[i].box.xmin, want[i][3], 1e-5) << i;
      EXPECT_NEAR(got[i].box.ymax, want[i][4], 1e-5) << i;
      EXPECT_NEAR(got[i].box.xmax, want[i][5], 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace pushpull
