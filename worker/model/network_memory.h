// Which buffers a network's layers need, and where they lie in the arena.
//
// Time runs in steps: forward of layer l is step l, the loss, which reads all outputs and writes
// their gradients, is step L, backward of layer l is step 2L - l.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/model/network_spec.h"
#include "worker/model/memory_planner.h"

namespace pushpull {

// Sizes of the numbers: T of activations and their gradients, ParameterOf<T> of statistics and
// sums.
struct ElementBytes {
  int64_t activation = 4;
  int64_t parameter = 4;
};

// Offsets in bytes, BufferPlan::kAbsent where a layer has no such buffer.
struct LayerBuffers {
  int64_t raw = BufferPlan::kAbsent;      // the operator's output, before batch norm and activation
  int64_t applied = BufferPlan::kAbsent;  // its value, kept where a residual link reads it
  int64_t dz = BufferPlan::kAbsent;       // gradient of the normalised output
  int64_t dropped = BufferPlan::kAbsent;  // the input after dropout
  int64_t ddropped = BufferPlan::kAbsent;
  int64_t mean =
      BufferPlan::kAbsent;  // batch statistics, or in inference the corrected moving ones
  int64_t variance = BufferPlan::kAbsent;
  int64_t dgamma = BufferPlan::kAbsent;
  int64_t dbeta = BufferPlan::kAbsent;
};

struct NetworkMemory {
  std::vector<BufferRequest> requests;  // in bytes
  BufferPlan plan;
  std::vector<LayerBuffers> layers;
};

// Layers whose value is the skip of a later one.
std::vector<bool> FindResidualSources(const NetworkSpec& network);

// Per layer the last one whose operator reads its value, LayerSpec::kNone where there is none.
std::vector<int> FindLastReaders(const NetworkSpec& network);

// Everything backward needs stays until its last reader. Layers below `first_trainable` get no
// gradients. The gradient of a residual's source shares the buffer of the residual's own gradient.
NetworkMemory PlanTrainingMemory(const NetworkSpec& network, int64_t max_batch, int first_trainable,
                                 const ElementBytes& bytes);

// A value lives until its last reader.
NetworkMemory PlanInferenceMemory(const NetworkSpec& network, int64_t max_batch,
                                  const ElementBytes& bytes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_
