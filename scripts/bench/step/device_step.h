// One network's training step on a GPU with everything it reads already there: how fast the GPU
// itself is, without feed and server.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_DEVICE_STEP_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_DEVICE_STEP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/device.h"
#include "kernels/profiled_operators.h"
#include "scripts/bench/step/bench_network.h"
#include "worker/model/device_runner.h"

namespace pushpull {

struct OperatorTime {
  OperatorRecord record;
  double milliseconds = 0.0;  // the median
};

// One calling thread.
class DeviceStep {
 public:
  // `device` must outlive the step. The batch is copied. RESOURCE_EXHAUSTED: it does not fit.
  static absl::StatusOr<std::unique_ptr<DeviceStep>> Create(const BenchNetwork& network,
                                                            const BenchBatch& batch,
                                                            Precision precision, Device* device);
  virtual ~DeviceStep() = default;

  virtual absl::Status SetVariables(absl::Span<const float> variables) = 0;

  // Milliseconds per step by the device's clock: `steps` recorded steps one after another, which
  // write the gradient each time and change no variable. Blocks.
  virtual absl::StatusOr<double> Measure(int steps) = 0;

  // The loss, and the gradient in host memory. Blocks.
  virtual absl::StatusOr<double> Step(absl::Span<float> gradient) = 0;

  // The time of each operator of a step, in program order, from `steps` steps that are queued
  // operator by operator while the device is kept busy. Short operators come out longer than in a
  // recorded step.
  virtual absl::StatusOr<std::vector<OperatorTime>> Profile(int steps) = 0;

  virtual int64_t arena_bytes() const = 0;
};

// Bytes per second that a copy within the device's memory moves, counting what is read and what is
// written: the ceiling of operators that are bound by memory.
absl::StatusOr<double> MeasureCopyBandwidth(Device* device, int64_t bytes = int64_t{1} << 30);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_DEVICE_STEP_H_
