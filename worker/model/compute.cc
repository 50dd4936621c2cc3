// Tested by tests/worker/eval/evaluator_test.cc.
#include "worker/model/compute.h"

#include "kernels/cpu/fast_operators.h"
#include "worker/model/host_runner.h"

namespace pushpull {

ComputeResources::ComputeResources(const ComputeOptions& options)
    : options_(options),
      pool_(options.threads),
      float_operators_(MakeFastOperators<float>(&pool_)),
      bfloat16_operators_(MakeFastOperators<Bfloat16>(&pool_)) {}

absl::StatusOr<std::unique_ptr<NetworkRunner>> ComputeResources::MakeRunner(
    const NetworkSpec& spec, const VariableLayout& layout, const RunnerOptions& options) {
  if (options_.device == nullptr) {
    return options_.precision == Precision::kBfloat16
               ? MakeHostRunner(spec, layout, bfloat16_operators_.get(), options)
               : MakeHostRunner(spec, layout, float_operators_.get(), options);
  }
  DeviceRunnerOptions device_options;
  device_options.runner = options;
  device_options.precision = options_.precision;
  return MakeDeviceRunner(spec, layout, options_.device, device_options);
}

}  // namespace pushpull
