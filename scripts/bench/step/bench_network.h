// The networks that benchmarks of the training step use, configured like TensorFlow's sample
// configs, and generated batches for them. Plain values.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_BENCH_NETWORK_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_BENCH_NETWORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "kernels/detection/target_assigner.h"

namespace pushpull {

struct BenchNetworkOptions {
  std::string model;  // "mobilenet_v2", "ssd_mobilenet_v1" or "ssd_mobilenet_v2"
  int size = 224;     // side of the images, in pixels
  int classes = 1000;
  double width = 1.0;  // depth multiplier
};

struct BenchNetwork {
  BenchNetworkOptions options;
  NetworkSpec spec;
  VariableLayout layout;
};

// INVALID_ARGUMENT: the model is unknown, or does not support the size or width.
absl::StatusOr<BenchNetwork> MakeBenchNetwork(const BenchNetworkOptions& options);

// Returns the variables of a new job.
std::vector<float> InitialVariables(const BenchNetwork& network);

struct BenchBatch {
  static constexpr int kObjectsPerImage = 8;

  int64_t samples = 0;
  std::vector<char> packed_images;  // a block of packed images, each of the input's size
  std::vector<float> images;        // the same images as a network reads them
  std::vector<int32_t> labels;      // only for classifiers
  std::vector<LabeledBox> objects;
  std::vector<int32_t> first_object;  // [samples + 1]; all zero for a classifier
};

BenchBatch MakeBenchBatch(const NetworkSpec& spec, int64_t samples);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_BENCH_NETWORK_H_
