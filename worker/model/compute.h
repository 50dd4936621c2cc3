// Chooses where networks run, on the CPU's threads or on a GPU, and builds runners for that place.
#ifndef PUSHPULL_WORKER_MODEL_COMPUTE_H_
#define PUSHPULL_WORKER_MODEL_COMPUTE_H_

#include <memory>

#include "absl/status/statusor.h"

#include "common/base/thread_pool.h"
#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "kernels/device.h"
#include "worker/model/device_runner.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct ComputeOptions {
  int threads = 1;           // CPU threads of the pool, also when networks run on a device
  Device* device = nullptr;  // null: the CPU; must outlive the resources and their runners
  Precision precision = Precision::kFloat;  // of activations, on the CPU as well
};

// Owns the thread pool and the CPU operators that runners share. Thread-compatible.
class ComputeResources {
 public:
  explicit ComputeResources(const ComputeOptions& options);

  // The pool of CPU threads; it exists on a device too. At most one thread may use it at a time.
  ThreadPool* pool() { return &pool_; }

  // Builds a runner, which must not outlive this object. Returns the errors of MakeHostRunner or
  // MakeDeviceRunner.
  absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(const NetworkSpec& spec,
                                                            const VariableLayout& layout,
                                                            const RunnerOptions& options);

 private:
  const ComputeOptions options_;
  ThreadPool pool_;
  // The operators on the CPU for each precision.
  const std::unique_ptr<Operators<float>> float_operators_;
  const std::unique_ptr<Operators<Bfloat16>> bfloat16_operators_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_COMPUTE_H_
