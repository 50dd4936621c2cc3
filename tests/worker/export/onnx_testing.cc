#include "tests/worker/export/onnx_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/base/random.h"

namespace pushpull {

Image RandomImage(int height, int width, int channels, uint64_t seed) {
  Image image;
  image.height = height;
  image.width = width;
  image.channels = channels;
  CounterRandom random(seed, 5);
  for (int i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(random.NextBelow(256)));
  }
  return image;
}

OnnxTensor ImageTensor(const std::vector<Image>& images) {
  const Image& first = images[0];
  OnnxTensor tensor;
  tensor.type = kOnnxUint8;
  tensor.shape = {static_cast<int64_t>(images.size()), first.height, first.width, first.channels};
  for (const Image& image : images) {
    tensor.values.insert(tensor.values.end(), image.pixels.begin(), image.pixels.end());
  }
  CHECK_EQ(static_cast<int64_t>(tensor.values.size()), NumElements(tensor.shape));
  return tensor;
}

OnnxTensor PlanesOf(int height, int width, int channels, const std::vector<float>& pixels) {
  OnnxTensor tensor = MakeTensor(kOnnxFloat32, {1, channels, height, width});
  for (size_t i = 0; i < pixels.size(); ++i) {
    const size_t pixel = i / channels, channel = i % channels;
    tensor.values.at(channel * height * width + pixel) = pixels[i];
  }
  return tensor;
}

void ExpectEachClose(const std::string& label, const std::vector<double>& values,
                     const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size()) << label;
  size_t worst = 0;
  double largest = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double apart = std::abs(values[i] - expected[i]) / (1.0 + std::abs(expected[i]));
    if (apart <= largest) continue;
    largest = apart;
    worst = i;
    if (std::isnan(apart)) break;  // and the comparison below fails
  }
  EXPECT_LE(largest, tolerance) << label << "[" << worst << "] is " << values[worst]
                                << ", expected " << expected[worst];
}

std::vector<double> ImageOf(const OnnxTensor& tensor, int64_t n) {
  const int64_t size = NumElements(tensor.shape) / tensor.shape[0];
  const auto begin = tensor.values.begin() + n * size;
  return {begin, begin + size};
}

std::vector<DetectedBox> DetectionsOf(const OnnxValues& outputs, int64_t n) {
  const std::vector<double> boxes = ImageOf(outputs.at("detection_boxes"), n);
  const std::vector<double> scores = ImageOf(outputs.at("detection_scores"), n);
  const std::vector<double> classes = ImageOf(outputs.at("detection_classes"), n);
  const size_t count = static_cast<size_t>(ImageOf(outputs.at("num_detections"), n)[0]);
  std::vector<DetectedBox> detections;
  for (size_t row = 0; row < scores.size(); ++row) {
    const auto edge = [&](size_t i) { return static_cast<float>(boxes[4 * row + i]); };
    const DetectedBox detection = {{edge(0), edge(1), edge(2), edge(3)},
                                   static_cast<int32_t>(classes[row]) - 1,
                                   static_cast<float>(scores[row])};
    if (row < count) {
      detections.push_back(detection);
    } else {
      EXPECT_TRUE(Apart(detection, DetectedBox()) == 0.0) << "row " << row << " is not in use";
    }
  }
  EXPECT_EQ(detections.size(), count);
  return detections;
}

double Apart(const DetectedBox& a, const DetectedBox& b) {
  if (a.label != b.label) return std::numeric_limits<double>::infinity();
  const float differences[] = {a.box.ymin - b.box.ymin, a.box.xmin - b.box.xmin,
                               a.box.ymax - b.box.ymax, a.box.xmax - b.box.xmax,
                               (a.score - b.score) / (1.0f + std::abs(b.score))};
  float largest = 0.0f;
  for (const float difference : differences) {
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(difference));
  }
  return largest;
}

}  // namespace pushpull
