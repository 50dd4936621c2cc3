// The gathers (kernels/gather/gather.h) that compute a gather layer and its gradient.
#ifndef PUSHPULL_WORKER_MODEL_GATHER_LAYERS_H_
#define PUSHPULL_WORKER_MODEL_GATHER_LAYERS_H_

#include <cstdint>
#include <vector>

#include "kernels/gather/gather.h"
#include "worker/model/fused_network.h"

namespace pushpull {

// The layer is of Kind::kGather. `x` has one pointer per input, to `samples` values of the input's
// shape. T is float, double or Bfloat16.

// Compute y, the layer's output, when they are run in this order.
template <typename T>
std::vector<Gather<T>> GatherForward(const FusedLayer& layer, int64_t samples,
                                     const std::vector<const T*>& x, T* y);

// Compute dx from dy, the gradient of the output. An entry of `dx` may be null: that gradient is
// not wanted. Entries of `x` are only read if BackwardReadsInputs(layer).
template <typename T>
std::vector<Gather<T>> GatherBackward(const FusedLayer& layer, int64_t samples,
                                      const std::vector<const T*>& x, const T* dy,
                                      const std::vector<T*>& dx);

bool BackwardReadsInputs(const FusedLayer& layer);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_GATHER_LAYERS_H_
