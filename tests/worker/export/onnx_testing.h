// Runs exported graphs in the reference interpreter and compares the results with our own.
#ifndef PUSHPULL_TESTS_WORKER_EXPORT_ONNX_TESTING_H_
#define PUSHPULL_TESTS_WORKER_EXPORT_ONNX_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testkit/onnx/onnx_tensor.h"
#include "worker/data/image_source.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

// An image of random bytes, so that any exchange of pixels or channels shows.
Image RandomImage(int height, int width, int channels, uint64_t seed);

// Returns images of one size as uint8 [N, height, width, channels].
OnnxTensor ImageTensor(const std::vector<Image>& images);

// Returns [height, width, channels] as float32 [1, channels, height, width].
OnnxTensor PlanesOf(int height, int width, int channels, const std::vector<float>& pixels);

// Expects values[i] to differ from expected[i] by at most tolerance * (1 + |expected[i]|). A
// failure shows the largest difference and its place. A value that is not finite always fails.
void ExpectEachClose(const std::string& label, const std::vector<double>& values,
                     const std::vector<float>& expected, double tolerance);

// Returns the elements of image n of a tensor [N, ...].
std::vector<double> ImageOf(const OnnxTensor& tensor, int64_t n);

// Returns the detections of image n in the outputs of AddDetection, with boxes as fractions of the
// image. Expects the rows that are not in use to be as AddDetection says.
std::vector<DetectedBox> DetectionsOf(const OnnxValues& outputs, int64_t n);

// Returns the largest difference of an edge, or of the scores relative to 1 + |b.score|. It is
// infinite if the labels differ or a difference is not finite.
double Apart(const DetectedBox& a, const DetectedBox& b);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EXPORT_ONNX_TESTING_H_
