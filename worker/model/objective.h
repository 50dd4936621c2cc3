// The end of a network: what its outputs are worth, and the derivatives that backward starts from.
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

// One call at a time.
template <typename T>
class Objective {
 public:
  virtual ~Objective() = default;

  // `outputs` are the values of OutputLayers(spec), in that order. Training also writes the loss's
  // derivatives, of the same shapes, to `doutputs` (an entry may be null: not wanted); evaluation
  // passes no doutputs and leaves label smoothing out. Only queues work; all pointers are to the
  // operators' memory.
  virtual void Run(const NetworkBatch<T>& batch, absl::Span<const T* const> outputs,
                   absl::Span<T* const> doutputs, const Workspace& workspace,
                   ObjectiveResult* result) = 0;
};

// Bytes that Run needs as workspace, and that MakeObjective takes from the memory source.
template <typename T>
int64_t ObjectiveWorkspace(const NetworkSpec& spec, const Operators<T>& operators, int64_t samples);
int64_t ObjectiveMemory(const NetworkSpec& spec);

// Softmax cross-entropy for a classifier, the SSD loss for a detector. The arguments must outlive
// the objective. Errors of Allocate.
template <typename T>
absl::StatusOr<std::unique_ptr<Objective<T>>> MakeObjective(const NetworkSpec& spec,
                                                            Operators<T>* operators,
                                                            MemorySource* memory);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_OBJECTIVE_H_
