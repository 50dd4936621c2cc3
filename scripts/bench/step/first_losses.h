// The first losses of a training on one batch, and a file with which another program can start from
// the same point.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_FIRST_LOSSES_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_FIRST_LOSSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "scripts/bench/step/bench_network.h"
#include "scripts/bench/step/device_step.h"

namespace pushpull {

// Gradient descent: velocity = momentum * velocity + gradient; variable -= learning_rate *
// velocity.
struct Descent {
  double learning_rate = 0.001;
  double momentum = 0.9;
};

// Returns the loss before each of `steps` steps. The host computes the descent in float.
absl::StatusOr<std::vector<double>> FirstLosses(const BenchNetwork& network, const Descent& descent,
                                                int steps, DeviceStep* step);

// Writes initial variables and batch in the format that gpu_step_torch.py describes.
absl::Status WriteStart(const BenchNetwork& network, const Descent& descent,
                        const BenchBatch& batch, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_FIRST_LOSSES_H_
