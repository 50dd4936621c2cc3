// Compares whole training and inference steps with values from an independent implementation in
// PyTorch (tests/reference/mobilenet_v2_torch.py, ssd_mobilenet_torch.py and
// feature_pyramid_torch.py) or torchvision (classifiers_torchvision.py), all in float64.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/model/test_network.h"

namespace pushpull {
namespace {

struct GoldenVariable {
  double norm, first, middle, last;
};

struct Golden {
  double loss = 0.0;
  double evaluated_loss = 0.0;
  std::map<std::string, GoldenVariable> variables;
};

Golden ReadGolden(const std::string& name) {
  const std::string path = absl::StrCat(PUSHPULL_SOURCE_DIR, "/tests/golden/", name, ".txt");
  std::ifstream file(path);
  CHECK(file) << "no " << path;
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "#") continue;
    if (key == "loss") {
      words >> golden.loss;
    } else if (key == "evaluated_loss") {
      words >> golden.evaluated_loss;
    } else {
      GoldenVariable& v = golden.variables[key];
      words >> v.norm >> v.first >> v.middle >> v.last;
    }
    CHECK(!words.fail()) << path << ": " << line;
  }
  return golden;
}

// The formula that the script uses: values in [-1, 1), a pure function of name and index.
double Uniform(const std::string& name, uint32_t index) {
  uint32_t x = 0;
  for (const char c : name) x = x * 31 + static_cast<unsigned char>(c);
  x += index * 0x9E3779B1u;
  x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  x ^= x >> 16;
  return x / 2147483648.0 - 1.0;
}

void FillVariables(const VariableLayout& layout, std::vector<double>* flat) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    const std::vector<int64_t>& shape = variable.shape;
    double centre = 0.0, radius = 0.0;
    if (absl::EndsWith(variable.name, "depthwise_weights")) {
      radius = std::sqrt(6.0 / (shape[0] * shape[1]));
    } else if (absl::EndsWith(variable.name, "/weights") ||
               absl::EndsWith(variable.name, "/pointwise_weights")) {
      radius = std::sqrt(6.0 / (shape[0] * shape[1] * shape[2]));
    } else if (absl::EndsWith(variable.name, "/biases")) {
      radius = 0.1;
    } else if (absl::EndsWith(variable.name, "/gamma")) {
      centre = 1.0, radius = 0.3;
    } else if (absl::EndsWith(variable.name, "/beta")) {
      centre = 0.3, radius = 0.3;
    } else if (absl::EndsWith(variable.name, "/moving_mean")) {
      radius = 0.2;
    } else {
      centre = 1.0, radius = 0.5;
    }
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      (*flat)[layout.offset(i) + k] = centre + radius * Uniform(variable.name, k);
    }
  }
}

// With the reference operators in double, the tolerance only has to cover a different order of
// summation.
constexpr double kDoubleTolerance = 1e-6;

template <typename T>
void ExpectGolden(const std::string& name, const ImageBatch<T>& batch, double tolerance,
                  TestNetwork<T>* network) {
  const Golden golden = ReadGolden(name);
  TestNetwork<T>& test = *network;
  std::vector<double> variables(test.variables.size());
  FillVariables(test.layout, &variables);
  test.variables.assign(variables.begin(), variables.end());
  EXPECT_NEAR(test.Step(batch).loss, golden.loss, tolerance * golden.loss);
  EXPECT_NEAR(test.network->Evaluate(test.variables, batch, 1)->loss, golden.evaluated_loss,
              tolerance * golden.evaluated_loss);
  ASSERT_EQ(static_cast<int64_t>(golden.variables.size()), test.layout.num_variables());
  for (const auto& [variable, expected] : golden.variables) {
    const std::vector<T> got = test.Part(test.gradient, variable);
    double norm = 0.0;
    for (const double value : got) norm += value * value;
    const double allowed = tolerance * std::max(expected.norm, 1e-3);
    EXPECT_NEAR(std::sqrt(norm), expected.norm, allowed) << variable;
    EXPECT_NEAR(got.front(), expected.first, allowed) << variable;
    EXPECT_NEAR(got[got.size() / 2], expected.middle, allowed) << variable;
    EXPECT_NEAR(got.back(), expected.last, allowed) << variable;
  }
}

void ExpectClassifier(const std::string& name, const std::string& classifier, int64_t samples) {
  TestNetwork<double> test(MakeTestConfig(classifier), MakeReferenceOperators<double>(), samples);
  TestBatch<double> batch(test.spec.input, 10, samples);
  for (size_t i = 0; i < batch.images.size(); ++i) batch.images[i] = Uniform("images", i);
  ExpectGolden(name, batch.view(), kDoubleTolerance, &test);
}

// The objects that the script uses.
const std::vector<std::vector<LabeledBox>>& Objects() {
  static const auto* const objects = new std::vector<std::vector<LabeledBox>>{
      {{{0.1f, 0.1f, 0.5f, 0.45f}, 0, 1.0f}, {{0.5f, 0.3f, 0.9f, 0.95f}, 2, 1.0f}},
      {{{0.05f, 0.02f, 0.97f, 0.99f}, 1, 1.0f}}};
  return *objects;
}

template <typename T>
void ExpectDetector(const std::string& name, const std::string& type, const std::string& ssd,
                    double tolerance, std::unique_ptr<Operators<T>> operators) {
  const int64_t samples = static_cast<int64_t>(Objects().size());
  TestNetwork<T> test(MakeSsdTestConfig(type, "num_classes: 3 " + ssd), std::move(operators),
                      samples);
  std::vector<T> images(samples * test.spec.input.num_elements());
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<T>(Uniform("images", i));
  const std::vector<absl::Span<const LabeledBox>> objects(Objects().begin(), Objects().end());
  ImageBatch<T> batch;
  batch.images = images.data();
  batch.samples = samples;
  batch.objects = objects.data();
  ExpectGolden(name, batch, tolerance, &test);
}

// An image of `size` pixels on each side, and a feature extractor with these fields.
std::string Square(int size, const std::string& width, const std::string& extractor = "") {
  const std::string side = absl::StrCat(size);
  return "image_resizer { fixed_shape_resizer { height: " + side + " width: " + side +
         " } } feature_extractor { depth_multiplier: " + width + " " + extractor + " } ";
}

TEST(NetworkGoldenTest, MobilenetV2MatchesOnColourImagesOfEvenSize) {
  ExpectClassifier("mobilenet_v2_035_rgb32", "", 4);
}

TEST(NetworkGoldenTest, MobilenetV2MatchesOnGreyImagesOfOddSize) {
  ExpectClassifier("mobilenet_v2_050_grey33",
                   "num_channels: 1 hidden_units: 24 label_smoothing: 0.1 "
                   "image_resizer { fixed_shape_resizer { height: 33 width: 33 } } "
                   "feature_extractor { depth_multiplier: 0.5 }",
                   3);
}

TEST(NetworkGoldenTest, MobilenetV3MatchesTorchvision) {
  const auto config = [](const std::string& size) {
    return "image_resizer { fixed_shape_resizer { height: 33 width: 33 } } "
           "feature_extractor { type: 'mobilenet_v3_" +
           size + "' depth_multiplier: 1 }";
  };
  ExpectClassifier("mobilenet_v3_large_rgb33", config("large"), 3);
  ExpectClassifier("mobilenet_v3_small_rgb33", config("small"), 3);
}

TEST(NetworkGoldenTest, ResnetV1MatchesTorchvision) {
  ExpectClassifier("resnet_v1_50_rgb36",
                   "image_resizer { fixed_shape_resizer { height: 36 width: 36 } } "
                   "feature_extractor { type: 'resnet_v1_50' depth_multiplier: 1 }",
                   3);
}

TEST(NetworkGoldenTest, SsdMobilenetV1Matches) {
  ExpectDetector("ssd_mobilenet_v1_025_75", "ssd_mobilenet_v1", Square(75, "0.25"),
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, SsdMobilenetV2Matches) {
  ExpectDetector("ssd_mobilenet_v2_035_75", "ssd_mobilenet_v2", Square(75, "0.35"),
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, SsdliteMatches) {
  ExpectDetector(
      "ssdlite_mobilenet_v2_035_70", "ssd_mobilenet_v2",
      Square(70, "0.35") + "box_predictor { convolutional_box_predictor { use_depthwise: true } }",
      kDoubleTolerance, MakeReferenceOperators<double>());
}

// A weight-shared predictor with anchors for it; `predictor` is the text of its other fields.
std::string Pyramid(int size, const std::string& width, const std::string& extractor,
                    const std::string& predictor) {
  return Square(size, width, extractor) +
         "box_predictor { weight_shared_convolutional_box_predictor { conv_hyperparams { "
         "activation: RELU_6 batch_norm { scale: true } } " +
         predictor + " } } ";
}

std::string Multiscale(int min_level, int max_level) {
  return absl::StrCat("anchor_generator { multiscale_anchor_generator { min_level: ", min_level,
                      " max_level: ", max_level, " aspect_ratios: [1.0, 2.0, 0.5] } } ");
}

TEST(NetworkGoldenTest, FeaturePyramidOnMobilenetV1Matches) {
  ExpectDetector("ssd_mobilenet_v1_fpn_025_96", "ssd_mobilenet_v1_fpn",
                 Pyramid(96, "0.25", "fpn { additional_layer_depth: 96 }",
                         "depth: 24 num_layers_before_predictor: 2") +
                     Multiscale(3, 7),
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, FpnLiteOnMobilenetV2Matches) {
  ExpectDetector("ssd_mobilenet_v2_fpnlite_035_64", "ssd_mobilenet_v2_fpn_keras",
                 Pyramid(64, "0.35", "use_depthwise: true fpn { additional_layer_depth: 64 }",
                         "depth: 32 num_layers_before_predictor: 2 share_prediction_tower: true "
                         "use_depthwise: true") +
                     Multiscale(3, 7),
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, FeaturePyramidOnResnet50Matches) {
  ExpectDetector("ssd_resnet50_v1_fpn_0125_64", "ssd_resnet50_v1_fpn",
                 Pyramid(64, "0.125",
                         "override_base_feature_extractor_hyperparams: true "
                         "fpn { max_level: 6 additional_layer_depth: 128 }",
                         "depth: 16 num_layers_before_predictor: 1") +
                     Multiscale(3, 6),
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, PoolingPyramidOnMobilenetV1Matches) {
  ExpectDetector("ssd_mobilenet_v1_ppn_025_75", "ssd_mobilenet_v1_ppn",
                 Pyramid(75, "0.25", "",
                         "depth: 40 num_layers_before_predictor: 1 kernel_size: 1 "
                         "share_prediction_tower: true") +
                     "anchor_generator { ssd_anchor_generator { "
                     "min_scale: 0.15 reduce_boxes_in_lowest_layer: false } } ",
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

}  // namespace
}  // namespace pushpull
