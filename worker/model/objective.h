// Computes the loss of a network's outputs, and its derivatives, from which the backward pass
// starts.
#ifndef PUSHPULL_WORKER_MODEL_OBJECTIVE_H_
#define PUSHPULL_WORKER_MODEL_OBJECTIVE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "kernels/memory.h"
#include "kernels/operators.h"
#include "worker/model/step_result.h"

namespace pushpull {

// Thread rule: one call at a time.
template <typename T>
class Objective {
 public:
  virtual ~Objective() = default;

  // Queues the computation of the loss into `result`. `outputs` are the values of
  // OutputNodes(spec) in that order, each [samples, H, W, C]. With `doutputs` (training), the
  // loss's derivatives are written there in the same shapes; a null entry is not wanted. Without
  // `doutputs` (evaluation), label smoothing is left out. All pointers are to the operators'
  // memory.
  virtual void Run(const NetworkBatch<T>& batch, absl::Span<const T* const> outputs,
                   absl::Span<T* const> doutputs, const Workspace& workspace,
                   ObjectiveResult* result) = 0;
};

// Size in bytes of the workspace that Run needs for a batch of `samples`.
template <typename T>
int64_t ObjectiveWorkspace(const NetworkSpec& spec, const Operators<T>& operators, int64_t samples);
// Size in bytes of the block that MakeObjective allocates from `memory`.
int64_t ObjectiveMemory(const NetworkSpec& spec);

// Builds the objective: softmax cross-entropy for a classifier, the SSD loss for a detector. The
// arguments must outlive it. Errors as MemorySource::Allocate.
template <typename T>
absl::StatusOr<std::unique_ptr<Objective<T>>> MakeObjective(const NetworkSpec& spec,
                                                            Operators<T>* operators,
                                                            MemorySource* memory);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_OBJECTIVE_H_
