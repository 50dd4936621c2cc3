// Where networks run: the CPU's threads, or a GPU.
#ifndef PUSHPULL_WORKER_MODEL_COMPUTE_H_
#define PUSHPULL_WORKER_MODEL_COMPUTE_H_

#include <memory>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/thread_pool.h"
#include "common/variable_layout.h"
#include "kernels/device.h"
#include "worker/model/device_runner.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct ComputeOptions {
  int threads = 1;           // of the host
  Device* device = nullptr;  // null: the CPU; must outlive the resources and its runners
  Precision precision = Precision::kFloat;  // on a device
};

// Thread-compatible.
class ComputeResources {
 public:
  explicit ComputeResources(const ComputeOptions& options);

  // Of the host, whatever the networks run on. One caller at a time.
  ThreadPool* pool() { return &pool_; }

  // The runner must not outlive this object. Errors as MakeHostRunner or MakeDeviceRunner.
  absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(const NetworkSpec& spec,
                                                            const VariableLayout& layout,
                                                            const RunnerOptions& options);

 private:
  const ComputeOptions options_;
  ThreadPool pool_;
  const std::unique_ptr<Operators<float>> operators_;  // of the CPU
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_COMPUTE_H_
