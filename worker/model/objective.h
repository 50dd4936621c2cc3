// The end of a network: what its outputs are worth, and the derivatives that backward starts from.
#ifndef PUSHPULL_WORKER_MODEL_OBJECTIVE_H_
#define PUSHPULL_WORKER_MODEL_OBJECTIVE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "common/model/network_spec.h"
#include "kernels/operators.h"
#include "worker/model/step_result.h"

namespace pushpull {

// Holds scratch memory that grows to the largest batch. One call at a time.
template <typename T>
class Objective {
 public:
  virtual ~Objective() = default;

  // INVALID_ARGUMENT names the sample whose label is out of range.
  virtual absl::Status CheckTargets(const ImageBatch<T>& batch) const = 0;

  // `outputs` are the values of OutputLayers(spec), in that order. Training also writes the loss's
  // derivatives, of the same shapes, to `doutputs` (an entry may be null: not wanted); evaluation
  // passes no doutputs and leaves label smoothing out.
  virtual StepResult Run(const ImageBatch<T>& batch, absl::Span<const T* const> outputs,
                         absl::Span<T* const> doutputs) = 0;
};

// Softmax cross-entropy for a classifier, the SSD loss for a detector. spec and operators must
// outlive the objective.
template <typename T>
std::unique_ptr<Objective<T>> MakeObjective(const NetworkSpec& spec, Operators<T>* operators);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_OBJECTIVE_H_
