// Tested by tests/worker/model/memory_planner_test.cc.
#include "worker/model/network_memory.h"

#include <algorithm>

#include "worker/model/gather_layers.h"

namespace pushpull {
namespace {

// Suits the memory transactions of a GPU and is larger than any vector register.
constexpr int64_t kAlignmentBytes = 256;

// Collects the buffer requests. Touch creates a request or extends its lifetime to another step.
class MemoryBuilder {
 public:
  MemoryBuilder(const FusedNetwork& network, int64_t max_batch, const ElementBytes& bytes)
      : network_(network),
        max_batch_(max_batch),
        bytes_(bytes),
        sources_(FindSkipSources(network)) {
    memory_.layers.resize(network.layers.size());
  }

  NetworkMemory BuildTraining(int first_trainable) && {
    const int count = static_cast<int>(network_.layers.size());
    for (int l = 0; l < count; ++l) Forward(l, /*last_step=*/2 * count);
    for (const int l : network_.outputs) {
      Touch(&LayerBuffers::raw, l, count);
      if (l >= first_trainable) Touch(&LayerBuffers::dz, l, count);
    }
    for (int l = count - 1; l >= first_trainable; --l) Backward(l, 2 * count - l, first_trainable);
    return std::move(*this).Finish();
  }

  NetworkMemory BuildInference() && {
    const int count = static_cast<int>(network_.layers.size());
    for (int l = 0; l < count; ++l) Forward(l, count);
    for (const int l : network_.outputs) Touch(&LayerBuffers::raw, l, count);
    return std::move(*this).Finish();
  }

 private:
  using Field = int64_t LayerBuffers::*;

  // Notes that `field` of layer l is in use at `step`.
  void Touch(Field field, int l, int step) {
    Touch(&(memory_.layers[l].*field), Size(field, l), step);
  }

  // Until Finish the fields of LayerBuffers hold indices of requests, not offsets.
  void Touch(int64_t* index, int64_t size, int step) {
    if (*index == BufferPlan::kAbsent) {
      *index = static_cast<int64_t>(memory_.requests.size());
      memory_.requests.push_back({size, step, step});
    }
    BufferRequest& request = memory_.requests[*index];
    request.first_step = std::min(request.first_step, step);
    request.last_step = std::max(request.last_step, step);
  }

  // Notes that input i of gather l is in use at `step` as a whole value.
  void TouchValue(int l, size_t i, int step) {
    const FusedLayer& layer = network_.layers[l];
    const int input = layer.inputs[i];
    if (input == FusedLayer::kImage || sources_[input] || IsPlain(network_, input)) return;
    Touch(&memory_.layers[l].values[i], ValueBytes(layer.input_shapes[i]), step);
  }

  int64_t ValueBytes(const FeatureShape& shape) const {
    return max_batch_ * shape.num_elements() * bytes_.activation;
  }

  int64_t Size(Field field, int l) const {
    const FusedLayer& layer = network_.layers[l];
    if (field == &LayerBuffers::dropped || field == &LayerBuffers::ddropped) {
      return ValueBytes(layer.input_shape());
    }
    if (field == &LayerBuffers::raw || field == &LayerBuffers::applied ||
        field == &LayerBuffers::dz) {
      return ValueBytes(layer.output_shape);
    }
    return layer.output_shape.channels * bytes_.parameter;
  }

  void ReadValue(int l, int step) {
    if (l == FusedLayer::kImage) return;
    if (sources_[l]) {
      Touch(&LayerBuffers::applied, l, step);
      return;
    }
    Touch(&LayerBuffers::raw, l, step);
    if (network_.layers[l].skip != FusedLayer::kNone) {
      Touch(&LayerBuffers::applied, network_.layers[l].skip, step);
    }
  }

  void Forward(int l, int last_step) {
    const FusedLayer& layer = network_.layers[l];
    for (const int input : layer.inputs) ReadValue(input, l);
    if (layer.kind == FusedLayer::Kind::kGather) {
      memory_.layers[l].values.resize(layer.inputs.size(), BufferPlan::kAbsent);
      memory_.layers[l].dvalues.resize(layer.inputs.size(), BufferPlan::kAbsent);
      for (size_t i = 0; i < layer.inputs.size(); ++i) TouchValue(l, i, l);
    }
    if (layer.keep_probability < 1.0f) Touch(&LayerBuffers::dropped, l, l);
    Touch(&LayerBuffers::raw, l, l);
    if (layer.batch_norm.has_value()) {
      for (const Field field : {&LayerBuffers::mean, &LayerBuffers::variance}) {
        Touch(field, l, 0);
        Touch(field, l, last_step);
      }
    }
    if (!sources_[l]) return;
    Touch(&LayerBuffers::applied, l, l);
    if (layer.skip != FusedLayer::kNone) Touch(&LayerBuffers::applied, layer.skip, l);
  }

  void Backward(int l, int step, int first_trainable) {
    const FusedLayer& layer = network_.layers[l];
    Touch(&LayerBuffers::raw, l, step);
    Touch(&LayerBuffers::dz, l, step);
    if (layer.batch_norm.has_value()) {
      Touch(&LayerBuffers::dgamma, l, step);
      Touch(&LayerBuffers::dbeta, l, step);
    }
    for (const int input : layer.inputs) ReadValue(input, step);
    if (layer.keep_probability < 1.0f) {
      Touch(&LayerBuffers::dropped, l, step);
      Touch(&LayerBuffers::ddropped, l, step);
    }
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const int input = layer.inputs[i];
      if (layer.kind == FusedLayer::Kind::kGather) {
        if (BackwardReadsInputs(layer)) TouchValue(l, i, step);
        if (input >= first_trainable) {
          Touch(&memory_.layers[l].dvalues[i], ValueBytes(layer.input_shapes[i]), step);
        }
      }
      if (input < first_trainable) continue;
      Touch(&LayerBuffers::raw, input, step);
      Touch(&LayerBuffers::dz, input, step);
      if (network_.layers[input].batch_norm.has_value()) {
        Touch(&LayerBuffers::dgamma, input, step);
        Touch(&LayerBuffers::dbeta, input, step);
      }
    }
    if (layer.skip >= first_trainable) {
      memory_.layers[layer.skip].dz = memory_.layers[l].dz;
    }
  }

  NetworkMemory Finish() && {
    memory_.plan = PlanBuffers(memory_.requests, kAlignmentBytes);
    for (LayerBuffers& layer : memory_.layers) {
      for (const Field field :
           {&LayerBuffers::raw, &LayerBuffers::applied, &LayerBuffers::dz, &LayerBuffers::dropped,
            &LayerBuffers::ddropped, &LayerBuffers::mean, &LayerBuffers::variance,
            &LayerBuffers::dgamma, &LayerBuffers::dbeta}) {
        SetOffset(&(layer.*field));
      }
      for (int64_t& place : layer.values) SetOffset(&place);
      for (int64_t& place : layer.dvalues) SetOffset(&place);
    }
    return std::move(memory_);
  }

  void SetOffset(int64_t* place) const {
    if (*place != BufferPlan::kAbsent) *place = memory_.plan.offsets[*place];
  }

  const FusedNetwork& network_;
  const int64_t max_batch_;
  const ElementBytes bytes_;
  const std::vector<bool> sources_;
  NetworkMemory memory_;
};

}  // namespace

bool IsPlain(const FusedNetwork& network, int l) {
  const FusedLayer& layer = network.layers[l];
  return !layer.batch_norm.has_value() && layer.activation == FusedActivation::kNone &&
         layer.skip == FusedLayer::kNone;
}

std::vector<bool> FindSkipSources(const FusedNetwork& network) {
  std::vector<bool> sources(network.layers.size(), false);
  for (const FusedLayer& layer : network.layers) {
    if (layer.skip != FusedLayer::kNone) sources[layer.skip] = true;
  }
  return sources;
}

std::vector<int> FindLastReaders(const FusedNetwork& network) {
  std::vector<int> readers(network.layers.size(), FusedLayer::kNone);
  for (int l = 0; l < static_cast<int>(network.layers.size()); ++l) {
    for (const int input : network.layers[l].inputs) {
      if (input != FusedLayer::kImage) readers[input] = l;
    }
  }
  return readers;
}

NetworkMemory PlanTrainingMemory(const FusedNetwork& network, int64_t max_batch,
                                 int first_trainable, const ElementBytes& bytes) {
  return MemoryBuilder(network, max_batch, bytes).BuildTraining(first_trainable);
}

NetworkMemory PlanInferenceMemory(const FusedNetwork& network, int64_t max_batch,
                                  const ElementBytes& bytes) {
  return MemoryBuilder(network, max_batch, bytes).BuildInference();
}

}  // namespace pushpull
