// A network's training step on a GPU with all inputs already in its memory. It shows the speed of
// the GPU without input pipeline and server.
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

// For one calling thread.
class DeviceStep {
 public:
  // `device` must outlive the step. The batch is copied. RESOURCE_EXHAUSTED: the step does not fit
  // into memory.
  static absl::StatusOr<std::unique_ptr<DeviceStep>> Create(const BenchNetwork& network,
                                                            const BenchBatch& batch,
                                                            Precision precision, Device* device);
  virtual ~DeviceStep() = default;

  virtual absl::Status SetVariables(absl::Span<const float> variables) = 0;

  // Returns milliseconds per step by the device's clock. Runs `steps` recorded steps one after
  // another, which write the gradient each time and change no variable. Blocks.
  virtual absl::StatusOr<double> Measure(int steps) = 0;

  // Returns the loss and writes the gradient to host memory. Blocks.
  virtual absl::StatusOr<double> Step(absl::Span<float> gradient) = 0;

  // Returns the time of each operator of a step in program order, from `steps` steps whose
  // operators are queued one by one while the device is busy. Short operators take longer than in a
  // recorded step.
  virtual absl::StatusOr<std::vector<OperatorTime>> Profile(int steps) = 0;

  virtual int64_t arena_bytes() const = 0;
};

// Bytes per second of a copy within the device's memory, counting bytes read and bytes written. It
// is the upper bound for operators that are limited by memory.
absl::StatusOr<double> MeasureCopyBandwidth(Device* device, int64_t bytes = int64_t{1} << 30);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_DEVICE_STEP_H_
