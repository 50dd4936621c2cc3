// Compares whole training and inference steps with values from an independent implementation in
// PyTorch (tests/reference/mobilenet_v2_torch.py and ssd_mobilenet_torch.py) or torchvision
// (classifiers_torchvision.py), all in float64.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/worker/model/golden_testing.h"
#include "tests/worker/model/test_network.h"

namespace pushpull {
namespace {

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

std::string Square(int size, const std::string& width) {
  const std::string side = absl::StrCat(size);
  return "image_resizer { fixed_shape_resizer { height: " + side + " width: " + side +
         " } } feature_extractor { depth_multiplier: " + width + " } ";
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

}  // namespace
}  // namespace pushpull
