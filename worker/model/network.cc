#include "worker/model/network.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// The smallest of 1/8, 1/4, 1/2 and the multiples of `elements` that is at least `end`; 0 if `end`
// is 0.
int64_t ForwardStop(int64_t end, int64_t elements) {
  if (end == 0) return 0;
  if (end > elements / 2) return (end + elements - 1) / elements * elements;
  int64_t stop = std::max<int64_t>(elements / 8, 1);
  while (stop < end) stop *= 2;
  return stop;
}

int FirstTrainable(const std::vector<LayerVariables>& variables) {
  const auto first = std::find_if(variables.begin(), variables.end(),
                                  [](const LayerVariables& v) { return v.trainable(); });
  return static_cast<int>(first - variables.begin());
}

// The largest workspace that any operator needs. Every batch size is tried, because a smaller batch
// may need more.
template <typename T>
int64_t WorkspaceBytes(const NetworkSpec& spec, const FusedNetwork& fused,
                       const Operators<T>& operators, int64_t max_batch) {
  int64_t bytes = 0;
  for (int64_t samples = 1; samples <= max_batch; ++samples) {
    bytes = std::max(bytes, ObjectiveWorkspace(spec, operators, samples));
    for (const FusedLayer& layer : fused.layers) {
      const ConvolutionShape shape = ConvolutionOf(layer, samples);
      switch (layer.kind) {
        case FusedLayer::Kind::kDepthwise:
          bytes = std::max(bytes, operators.DepthwiseWorkspace(shape));
          break;
        case FusedLayer::Kind::kGather:
          for (const FeatureShape& input : layer.input_shapes) {
            const int64_t rows = samples * input.height * input.width;
            bytes = std::max(bytes, operators.PoolWorkspace({rows, 1, 1, input.channels}));
          }
          break;
        case FusedLayer::Kind::kGlobalAveragePool:
          bytes = std::max(bytes, operators.PoolWorkspace(shape.in));
          break;
        case FusedLayer::Kind::kConvolution:
          bytes = std::max(bytes, operators.ConvolutionWorkspace(shape));
          break;
      }
      if (layer.keep_probability < 1.0f) {
        bytes = std::max(bytes, operators.PoolWorkspace({shape.in.rows(), 1, 1, shape.in.c}));
      }
    }
  }
  return bytes;
}

// The end of the variables of a layer and of all layers before it, with the padding after them.
std::vector<int64_t> VariablesEnd(const std::vector<LayerVariables>& layers) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const LayerVariables& variables : layers) {
    for (const VariablePlace* place : variables.places()) {
      if (place->present()) end = std::max(end, place->offset + place->padded_size);
    }
    ends.push_back(end);
  }
  return ends;
}

// The number of elements that the layer with the most of them adds to the gradients of others.
int64_t SharedElements(const std::vector<LayerVariables>& layers) {
  int64_t elements = 0;
  for (const LayerVariables& variables : layers) {
    if (!variables.weights.shared && !variables.biases.shared) continue;
    elements = std::max(elements, variables.weights.size + variables.biases.size);
  }
  return elements;
}

// The ranges of a layer's gradient that no operator writes: frozen variables and padding. Adjacent
// ranges are joined.
std::vector<ElementRange> ZeroRanges(const LayerVariables& variables) {
  std::vector<ElementRange> ranges;
  for (const VariablePlace* place : variables.places()) {
    if (!place->present()) continue;
    const int64_t begin = place->offset + (place->frozen ? 0 : place->size);
    const int64_t end = place->offset + place->padded_size;
    if (begin == end) continue;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end});
    }
  }
  return ranges;
}

}  // namespace

template <typename T>
absl::StatusOr<typename Network<T>::Plan> Network<T>::MakePlan(const NetworkSpec& spec,
                                                               const VariableLayout& layout,
                                                               const Operators<T>& operators,
                                                               const NetworkOptions& options) {
  if (options.max_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch is ", options.max_batch, ", expected at least 1"));
  }
  PP_RETURN_IF_ERROR(CheckNetwork(spec));
  Plan plan;
  PP_ASSIGN_OR_RETURN(plan.fused, FuseNetwork(spec));
  PP_ASSIGN_OR_RETURN(plan.variables, ResolveVariables(spec, plan.fused, layout));
  plan.variables_end = VariablesEnd(plan.variables);
  if (options.training) plan.shared_elements = SharedElements(plan.variables);
  plan.total_elements = layout.total_elements();
  plan.first_trainable = FirstTrainable(plan.variables);
  const ElementBytes bytes{sizeof(T), sizeof(Parameter)};
  plan.inference = PlanInferenceMemory(plan.fused, options.max_batch, bytes);
  if (options.training) {
    plan.training = PlanTrainingMemory(plan.fused, options.max_batch, plan.first_trainable, bytes);
  }
  plan.arena_bytes = std::max(plan.inference.plan.total, plan.training.plan.total);
  plan.workspace_bytes = WorkspaceBytes(spec, plan.fused, operators, options.max_batch);
  for (const FusedLayer& layer : plan.fused.layers) {
    plan.constants = std::max<int64_t>(plan.constants, layer.output_shape.channels);
  }
  return plan;
}

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> Network<T>::Create(const NetworkSpec& spec,
                                                               const VariableLayout& layout,
                                                               Operators<T>* operators,
                                                               const NetworkOptions& options) {
  PP_ASSIGN_OR_RETURN(Plan plan, MakePlan(spec, layout, *operators, options));
  std::unique_ptr<Network> network =
      absl::WrapUnique(new Network(spec, std::move(plan), operators, options));
  PP_RETURN_IF_ERROR(network->AllocateMemory());
  return network;
}

template <typename T>
absl::StatusOr<std::vector<int64_t>> Network<T>::RequiredBlocks(const NetworkSpec& spec,
                                                                const VariableLayout& layout,
                                                                const Operators<T>& operators,
                                                                const NetworkOptions& options) {
  PP_ASSIGN_OR_RETURN(const Plan plan, MakePlan(spec, layout, operators, options));
  return std::vector<int64_t>{plan.arena_bytes, plan.workspace_bytes,
                              2 * plan.constants * static_cast<int64_t>(sizeof(Parameter)),
                              plan.shared_elements * static_cast<int64_t>(sizeof(Parameter)),
                              ObjectiveMemory(spec)};
}

template <typename T>
Network<T>::Network(const NetworkSpec& spec, Plan plan, Operators<T>* operators,
                    const NetworkOptions& options)
    : spec_(spec),
      plan_(std::move(plan)),
      operators_(*operators),
      options_(options),
      skip_sources_(FindSkipSources(plan_.fused)),
      last_readers_(FindLastReaders(plan_.fused)),
      batch_norms_(plan_.fused.layers.size()) {
  for (const LayerVariables& variables : plan_.variables) zeros_.push_back(ZeroRanges(variables));
}

template <typename T>
absl::Status Network<T>::AllocateMemory() {
  MemorySource* const memory = options_.memory;
  PP_ASSIGN_OR_RETURN(arena_, memory->Allocate(plan_.arena_bytes));
  PP_ASSIGN_OR_RETURN(workspace_, memory->Allocate(std::max<int64_t>(plan_.workspace_bytes, 1)));
  std::vector<Parameter> constants(2 * plan_.constants, Parameter(0));
  std::fill_n(constants.begin(), plan_.constants, Parameter(1));
  const int64_t bytes = static_cast<int64_t>(constants.size() * sizeof(Parameter));
  PP_ASSIGN_OR_RETURN(constants_, memory->Allocate(bytes));
  memory->Write(constants_->data(), constants.data(), bytes);
  PP_ASSIGN_OR_RETURN(
      shared_, memory->Allocate(std::max<int64_t>(plan_.shared_elements * sizeof(Parameter), 1)));
  PP_ASSIGN_OR_RETURN(objective_, MakeObjective(spec_, &operators_, memory));
  return absl::OkStatus();
}

template <typename T>
void Network<T>::BeginStep(const Step& step) {
  CHECK(options_.training) << "the network was built for inference only";
  Begin({step.result, step.variables, step.batch, step.dropout_seed, step.gradient,
         &plan_.training.layers});
  next_forward_ = 0;
  next_layer_ = num_layers() - 1;
  final_from_ = plan_.total_elements;
}

template <typename T>
void Network<T>::ContinueForward(int64_t available) {
  while (next_forward_ < num_layers() && plan_.variables_end[next_forward_] <= available) {
    ForwardLayer(next_forward_++);
    if (next_forward_ == num_layers()) RunObjective();
  }
}

template <typename T>
void Network<T>::RunObjective() {
  std::vector<T*> doutputs;
  for (const int l : plan_.fused.outputs) {
    doutputs.push_back(l >= plan_.first_trainable ? Values(buffers(l).dz) : nullptr);
  }
  objective_->Run(pass_.batch, outputs(), doutputs, workspace(), pass_.result);
}

template <typename T>
std::vector<int64_t> Network<T>::ForwardStops(int64_t elements) const {
  CHECK_GT(elements, 0);
  std::vector<int64_t> stops;
  for (const int64_t end : plan_.variables_end) {
    const int64_t stop = std::min(ForwardStop(end, elements), plan_.total_elements);
    if (stops.empty() || stops.back() != stop) stops.push_back(stop);
  }
  stops.back() = plan_.total_elements;
  return stops;
}

template <typename T>
int64_t Network<T>::ContinueStep(int64_t elements) {
  CHECK_GT(elements, 0);
  CHECK_EQ(next_forward_, num_layers()) << "the forward pass is not queued in full";
  const int64_t smallest = std::max<int64_t>(elements / 16, 1);
  const int64_t wanted = final_from_ - std::min(elements, std::max(final_from_ / 2, smallest));
  if (next_layer_ == num_layers() - 1) PushMovingStatistics();
  while (next_layer_ >= 0 && final_from_ > 0) {
    const int l = next_layer_--;
    if (l >= plan_.first_trainable) BackwardLayer(l);
    FinishGradient(l);
    // Layers below first_trainable only write zeros, so they all go into the last part.
    if (l < plan_.first_trainable) continue;
    final_from_ = l == 0 ? 0 : std::min(final_from_, plan_.variables_end[l - 1]);
    if (final_from_ <= wanted) return final_from_;
  }
  final_from_ = 0;
  return 0;
}

template <typename T>
void Network<T>::Infer(const Parameter* variables, const NetworkBatch<T>& batch,
                       int64_t num_updates) {
  Begin({nullptr, variables, batch, nullptr, nullptr, &plan_.inference.layers});
  CorrectMovingStatistics(num_updates);
  for (int l = 0; l < num_layers(); ++l) ForwardLayer(l);
}

template <typename T>
void Network<T>::Evaluate(ObjectiveResult* result) {
  objective_->Run(pass_.batch, outputs(), {}, workspace(), result);
}

template <typename T>
std::vector<const T*> Network<T>::outputs() const {
  std::vector<const T*> values;
  for (const int l : plan_.fused.outputs) values.push_back(Values(buffers(l).raw));
  return values;
}

// network_passes.cc instantiates the members that it defines.
template class Network<float>;
template class Network<double>;
template class Network<Bfloat16>;

}  // namespace pushpull
