// The networks that benchmarks of the training step use, configured like TensorFlow's sample
// configs or by a pipeline config, and generated batches for them. Plain values.
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
  std::string name;  // BenchNetworkOptions::model, or the path of the pipeline config
  NetworkSpec spec;
  VariableLayout layout;
  int64_t batch_size = 0;  // train_config.batch_size; 0: there is no pipeline config
};

// INVALID_ARGUMENT: the model is unknown, or does not support the size or width.
absl::StatusOr<BenchNetwork> MakeBenchNetwork(const BenchNetworkOptions& options);

// Returns the network of the pipeline config at `path`. Errors as LoadValidConfig.
absl::StatusOr<BenchNetwork> LoadBenchNetwork(const std::string& path);

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
