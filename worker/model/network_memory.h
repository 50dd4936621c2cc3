// Plans the buffers of a network's layers: which ones a layer needs, how long each is in use, and
// where it lies in the arena. Plain values and pure functions.
//
// With L layers, lifetimes are counted in these steps: step l is the forward pass of layer l; step
// L is the loss, which reads all outputs and writes their gradients; step 2L - l is the backward
// pass of layer l.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "worker/model/fused_network.h"
#include "worker/model/memory_planner.h"

namespace pushpull {

// Sizes of one element in bytes.
struct ElementBytes {
  int64_t activation = 4;  // of T: activations and their gradients
  int64_t parameter = 4;   // of ParameterOf<T>: statistics and sums
};

// Offsets of one layer's buffers in the arena, in bytes; BufferPlan::kAbsent if the layer does not
// need the buffer.
struct LayerBuffers {
  int64_t raw = BufferPlan::kAbsent;      // the operator's output, before batch norm and activation
  int64_t applied = BufferPlan::kAbsent;  // the layer's final value, if it is the skip of another
  int64_t dz = BufferPlan::kAbsent;       // gradient of the output after batch norm
  int64_t dropped = BufferPlan::kAbsent;  // the input after dropout
  int64_t ddropped = BufferPlan::kAbsent;  // gradient of `dropped`
  // One per input of a gather: its value, if it is not in memory already, and its gradient.
  std::vector<int64_t> values;
  std::vector<int64_t> dvalues;
  // Training: statistics of the batch. Inference: moving statistics after bias correction.
  int64_t mean = BufferPlan::kAbsent;
  int64_t variance = BufferPlan::kAbsent;
  // Used if the layer has no variable gamma or beta to write the gradient to.
  int64_t dgamma = BufferPlan::kAbsent;
  int64_t dbeta = BufferPlan::kAbsent;
};

// True if the value of layer l is its raw output.
bool IsPlain(const FusedNetwork& network, int l);

struct NetworkMemory {
  std::vector<BufferRequest> requests;  // sizes in bytes
  BufferPlan plan;                      // of `requests`, in bytes
  std::vector<LayerBuffers> layers;     // one per layer
};

// Returns for each layer whether its value is the skip of a later layer.
std::vector<bool> FindSkipSources(const FusedNetwork& network);

// For each layer, the last layer whose operator reads its value; FusedLayer::kNone if none does.
std::vector<int> FindLastReaders(const FusedNetwork& network);

// Plans the arena for training steps of up to `max_batch` samples. A buffer that the backward pass
// reads lives until its last reader there. Layers below `first_trainable` get no gradient buffers.
// The gradient of a skip is that of the sum, so the dz of its source shares the buffer of the dz of
// the layer that adds it.
NetworkMemory PlanTrainingMemory(const FusedNetwork& network, int64_t max_batch,
                                 int first_trainable, const ElementBytes& bytes);

// Plans the arena for inference: a value lives until its last reader in the forward pass.
NetworkMemory PlanInferenceMemory(const FusedNetwork& network, int64_t max_batch,
                                  const ElementBytes& bytes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_MEMORY_H_
