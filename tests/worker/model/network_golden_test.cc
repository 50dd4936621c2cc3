// Compares whole training and inference steps with values from an independent implementation in
// PyTorch (tests/reference/mobilenet_v2_torch.py, ssd_mobilenet_torch.py, ssd_inception_torch.py
// and feature_pyramid_torch.py) or torchvision (classifiers_torchvision.py), all in float64.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/model/test_network.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/model/golden_testing.h"

namespace pushpull {
namespace {

// PyTorch computes its hard-sigmoid in double with a factor of 1/6 in single precision.
constexpr double kTorchHardSigmoidTolerance = 1e-6;

void ExpectClassifier(const std::string& name, const std::string& classifier, int64_t samples,
                      double tolerance = kDoubleTolerance) {
  TestNetwork<double> test(MakeTestConfig(classifier), MakeReferenceOperators<double>(), samples);
  TestBatch<double> batch(test.spec.input, 10, samples);
  const UniformNumbers numbers("images");
  for (size_t i = 0; i < batch.images.size(); ++i) batch.images[i] = numbers[i];
  ExpectGolden(name, batch.view(), tolerance, &test);
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
  const UniformNumbers numbers("images");
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<T>(numbers[i]);
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
  ExpectClassifier("mobilenet_v3_large_rgb33", config("large"), 3, kTorchHardSigmoidTolerance);
  ExpectClassifier("mobilenet_v3_small_rgb33", config("small"), 3, kTorchHardSigmoidTolerance);
}

void ExpectResnet(const std::string& file, const std::string& extractor) {
  ExpectClassifier(file,
                   "image_resizer { fixed_shape_resizer { height: 36 width: 36 } } "
                   "feature_extractor { " +
                       extractor + " }",
                   3);
}

TEST(NetworkGoldenTest, Resnet50MatchesTorchvision) {
  ExpectResnet("resnet_v1_50_rgb36", "type: 'resnet_v1_50' depth_multiplier: 1");
}

// The deeper ones have the same layers. They are narrow here, because their full width takes half a
// minute.
TEST(NetworkGoldenTest, Resnet101MatchesTorchvision) {
  ExpectResnet("resnet_v1_101_025_rgb36", "type: 'resnet_v1_101' depth_multiplier: 0.25");
}

TEST(NetworkGoldenTest, Resnet152MatchesTorchvision) {
  ExpectResnet("resnet_v1_152_025_rgb36", "type: 'resnet_v1_152' depth_multiplier: 0.25");
}

TEST(NetworkGoldenTest, VggMatchesTorchvision) {
  ExpectClassifier("vgg_a_025_rgb70",
                   "image_resizer { fixed_shape_resizer { height: 70 width: 70 } } "
                   "feature_extractor { type: 'vgg_a' depth_multiplier: 0.25 }",
                   3);
}

// Without conv_hyperparams: slim's scope, and biases in the first layer.
TEST(NetworkGoldenTest, InceptionV2Matches) {
  ExpectClassifier("inception_v2_rgb65",
                   "image_resizer { fixed_shape_resizer { height: 65 width: 65 } } "
                   "feature_extractor { type: 'inception_v2' depth_multiplier: 1 min_depth: 16 }",
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

TEST(NetworkGoldenTest, SsdInceptionV2Matches) {
  ExpectDetector("ssd_inception_v2_050_75", "ssd_inception_v2",
                 Square(75, "0.5", "override_base_feature_extractor_hyperparams: true"),
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

// The second type is that of TensorFlow 2.
TEST(NetworkGoldenTest, FpnLiteOnMobilenetV2Matches) {
  const std::string ssd =
      Pyramid(64, "0.35", "use_depthwise: true fpn { additional_layer_depth: 64 }",
              "depth: 32 num_layers_before_predictor: 2 share_prediction_tower: true "
              "use_depthwise: true") +
      Multiscale(3, 7);
  ExpectDetector("ssd_mobilenet_v2_fpnlite_035_64", "ssd_mobilenet_v2_fpn", ssd, kDoubleTolerance,
                 MakeReferenceOperators<double>());
  ExpectDetector("ssd_mobilenet_v2_fpnlite_keras_035_64", "ssd_mobilenet_v2_fpn_keras", ssd,
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, FeaturePyramidOnResnet50Matches) {
  const std::string ssd = Pyramid(64, "0.125",
                                  "override_base_feature_extractor_hyperparams: true "
                                  "fpn { max_level: 6 additional_layer_depth: 128 }",
                                  "depth: 16 num_layers_before_predictor: 1") +
                          Multiscale(3, 6);
  ExpectDetector("ssd_resnet50_v1_fpn_0125_64", "ssd_resnet50_v1_fpn", ssd, kDoubleTolerance,
                 MakeReferenceOperators<double>());
  ExpectDetector("ssd_resnet50_v1_fpn_keras_0125_64", "ssd_resnet50_v1_fpn_keras", ssd,
                 kDoubleTolerance, MakeReferenceOperators<double>());
}

TEST(NetworkGoldenTest, MnasFpnOnMobilenetV2Matches) {
  ExpectDetector("ssd_mobilenet_v2_mnasfpn_035_64", "ssd_mobilenet_v2_mnasfpn",
                 Pyramid(64, "0.35", "fpn { max_level: 6 additional_layer_depth: 48 }",
                         "depth: 16 num_layers_before_predictor: 1 share_prediction_tower: true "
                         "use_depthwise: true") +
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
