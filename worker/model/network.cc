#include "worker/model/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace pushpull {
namespace {

absl::Status GraphError(const LayerSpec& layer, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("layer ", layer.scope, " ", problem));
}

// One value per anchor location, shape and class of what the head says.
absl::Status CheckHead(const NetworkSpec& spec, const DetectionHead& head) {
  const int columns[] = {kBoxCodeSize, spec.detection->num_classes + 1};
  const int layers[] = {head.box_layer, head.class_layer};
  for (int i = 0; i < 2; ++i) {
    if (layers[i] < 0 || layers[i] >= static_cast<int>(spec.layers.size())) {
      return absl::InvalidArgumentError("a detection head names no layer");
    }
    const FeatureShape expected{head.height, head.width, head.anchors_per_location * columns[i]};
    if (!(spec.layers[layers[i]].output_shape == expected)) {
      return GraphError(spec.layers[layers[i]], "has not the shape of a detection head");
    }
  }
  return absl::OkStatus();
}

// Outputs are plain values that no layer reads; all other layers are read.
absl::Status CheckOutputs(const NetworkSpec& spec) {
  if (spec.detection.has_value()) {
    for (const DetectionHead& head : spec.detection->heads) {
      PP_RETURN_IF_ERROR(CheckHead(spec, head));
    }
  } else if (!(spec.layers.back().output_shape == FeatureShape{1, 1, spec.num_classes})) {
    return GraphError(spec.layers.back(), "does not give one score per class");
  }
  std::vector<int> readers = FindLastReaders(spec);
  for (const int l : OutputLayers(spec)) {
    const LayerSpec& layer = spec.layers[l];
    if (readers[l] != LayerSpec::kNone || layer.batch_norm.has_value() ||
        layer.activation != ActivationFunction::kNone || layer.residual != LayerSpec::kNone) {
      return GraphError(layer, "is an output and not a plain value that no layer reads");
    }
    readers[l] = l;
  }
  const auto unread = std::find(readers.begin(), readers.end(), LayerSpec::kNone);
  if (unread == readers.end()) return absl::OkStatus();
  return GraphError(spec.layers[unread - readers.begin()], "is neither read nor an output");
}

// What the passes take for granted.
absl::Status CheckGraph(const NetworkSpec& spec) {
  if (spec.layers.empty()) return absl::InvalidArgumentError("the network has no layers");
  const std::vector<int> last_readers = FindLastReaders(spec);
  std::vector<int> residual_readers(spec.layers.size(), 0);
  for (int l = 0; l < static_cast<int>(spec.layers.size()); ++l) {
    const LayerSpec& layer = spec.layers[l];
    if (layer.input < LayerSpec::kImage || layer.input >= l) {
      return GraphError(layer, "reads no earlier layer");
    }
    const FeatureShape& input =
        layer.input == LayerSpec::kImage ? spec.input : spec.layers[layer.input].output_shape;
    if (!(layer.input_shape == input)) {
      return GraphError(layer, "has another input shape than the layer it reads");
    }
    if (layer.residual != LayerSpec::kNone) {
      if (layer.residual < 0 || layer.residual >= l || ++residual_readers[layer.residual] > 1) {
        return GraphError(layer, "has a residual link to no earlier layer or to a shared one");
      }
      if (layer.activation != ActivationFunction::kNone ||
          !(spec.layers[layer.residual].output_shape == layer.output_shape)) {
        return GraphError(layer, "has an activation or another shape than its residual link");
      }
      if (last_readers[layer.residual] > l) {
        return GraphError(layer, "has a residual link to a layer that a later one reads");
      }
    }
    if (layer.kind == LayerKind::kDepthwise && layer.has_biases) {
      return GraphError(layer, "is depthwise and has biases");
    }
    if (layer.dropout_keep_probability < 1.0f &&
        (layer.input == LayerSpec::kImage || layer.kind == LayerKind::kGlobalAveragePool)) {
      return GraphError(layer, "has dropout on the image or before a pool");
    }
  }
  return CheckOutputs(spec);
}

int FirstTrainable(const std::vector<LayerVariables>& variables) {
  const auto first = std::find_if(variables.begin(), variables.end(),
                                  [](const LayerVariables& v) { return v.trainable(); });
  return static_cast<int>(first - variables.begin());
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> Network<T>::Create(const NetworkSpec& spec,
                                                               const VariableLayout& layout,
                                                               Operators<T>* operators,
                                                               const NetworkOptions& options) {
  if (options.max_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch is ", options.max_batch, ", expected at least 1"));
  }
  PP_RETURN_IF_ERROR(CheckGraph(spec));
  PP_ASSIGN_OR_RETURN(std::vector<LayerVariables> variables, ResolveVariables(spec, layout));
  return absl::WrapUnique(
      new Network(spec, std::move(variables), layout.total_elements(), operators, options));
}

template <typename T>
Network<T>::Network(const NetworkSpec& spec, std::vector<LayerVariables> variables,
                    int64_t total_elements, Operators<T>* operators, const NetworkOptions& options)
    : spec_(spec),
      variables_(std::move(variables)),
      total_elements_(total_elements),
      operators_(*operators),
      options_(options),
      first_trainable_(FirstTrainable(variables_)),
      inference_memory_(PlanInferenceMemory(spec_, options.max_batch)),
      output_layers_(OutputLayers(spec_)),
      objective_(MakeObjective(spec_, operators)),
      residual_sources_(FindResidualSources(spec_)),
      last_readers_(FindLastReaders(spec_)),
      batch_norms_(spec_.layers.size()) {
  int64_t elements = inference_memory_.plan.total;
  if (options.training) {
    training_memory_ = PlanTrainingMemory(spec_, options.max_batch, first_trainable_);
    elements = std::max(elements, training_memory_.plan.total);
  }
  arena_ = std::make_unique<MemoryBlock>(elements * static_cast<int64_t>(sizeof(T)));
  data_ = static_cast<T*>(arena_->data());
  workspace_ = std::make_unique<MemoryBlock>(MeasureWorkspace(options.max_batch));
  int channels = 0;
  for (const LayerSpec& layer : spec_.layers) {
    channels = std::max(channels, layer.output_shape.channels);
  }
  ones_.assign(channels, T(1));
  zeros_.assign(channels, T(0));
}

template <typename T>
int64_t Network<T>::MeasureWorkspace(int64_t samples) const {
  int64_t bytes = 0;
  for (const LayerSpec& layer : spec_.layers) {
    const ConvolutionShape shape = ConvolutionOf(layer, samples);
    switch (layer.kind) {
      case LayerKind::kDepthwise:
        bytes = std::max(bytes, operators_.DepthwiseWorkspace(shape));
        break;
      case LayerKind::kGlobalAveragePool:
        bytes = std::max(bytes, operators_.PoolWorkspace(shape.in));
        break;
      case LayerKind::kConvolution:
      case LayerKind::kPointwise:
      case LayerKind::kDense:
        bytes = std::max(bytes, operators_.ConvolutionWorkspace(shape));
        break;
    }
    if (layer.dropout_keep_probability < 1.0f) {
      bytes = std::max(bytes, operators_.PoolWorkspace({shape.in.rows(), 1, 1, shape.in.c}));
    }
  }
  return bytes;
}

template <typename T>
absl::Status Network<T>::CheckCall(absl::Span<const T> variables,
                                   const ImageBatch<T>& batch) const {
  if (static_cast<int64_t>(variables.size()) != total_elements_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", variables.size(), " elements of variables, expected ", total_elements_));
  }
  if (batch.samples < 1 || batch.samples > options_.max_batch) {
    return absl::InvalidArgumentError(absl::StrCat("got a batch of ", batch.samples,
                                                   " samples, expected 1 to ", options_.max_batch));
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<StepResult> Network<T>::ForwardBackward(absl::Span<const T> variables,
                                                       const ImageBatch<T>& batch,
                                                       uint64_t dropout_seed,
                                                       absl::Span<T> gradient,
                                                       GradientReady ready) {
  if (!options_.training) {
    return absl::FailedPreconditionError("the network was built for inference only");
  }
  PP_RETURN_IF_ERROR(CheckCall(variables, batch));
  PP_RETURN_IF_ERROR(objective_->CheckTargets(batch));
  if (static_cast<int64_t>(gradient.size()) != total_elements_) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", gradient.size(), " elements of gradient, expected ", total_elements_));
  }
  Begin({variables.data(), batch.images, batch.samples, gradient.data(), dropout_seed,
         &training_memory_.layers});
  RunForward();
  std::vector<T*> doutputs;
  for (const int l : output_layers_) {
    doutputs.push_back(l >= first_trainable_ ? At(buffers(l).dz) : nullptr);
  }
  const StepResult result = objective_->Run(batch, outputs(), doutputs);
  bool whole = false;
  for (int l = num_layers() - 1; l >= 0; --l) {
    if (l >= first_trainable_) BackwardLayer(l);
    FinishGradient(l);
    if (l < first_trainable_ || !variables_[l].weights.present()) continue;
    whole = variables_[l].weights.offset == 0;
    ready(variables_[l].weights.offset);
  }
  if (!whole) ready(0);
  return result;
}

template <typename T>
absl::StatusOr<StepResult> Network<T>::Evaluate(absl::Span<const T> variables,
                                                const ImageBatch<T>& batch, int64_t num_updates) {
  PP_RETURN_IF_ERROR(objective_->CheckTargets(batch));
  PP_RETURN_IF_ERROR(Infer(variables, batch, num_updates));
  return objective_->Run(batch, outputs(), {});
}

template <typename T>
absl::Status Network<T>::Infer(absl::Span<const T> variables, const ImageBatch<T>& batch,
                               int64_t num_updates) {
  PP_RETURN_IF_ERROR(CheckCall(variables, batch));
  Begin({variables.data(), batch.images, batch.samples, nullptr, 0, &inference_memory_.layers});
  CorrectMovingStatistics(num_updates);
  RunForward();
  return absl::OkStatus();
}

template <typename T>
std::vector<const T*> Network<T>::outputs() const {
  std::vector<const T*> values;
  for (const int l : output_layers_) values.push_back(At(buffers(l).raw));
  return values;
}

// The members that network_passes.cc defines are instantiated there.
template class Network<float>;
template class Network<double>;

}  // namespace pushpull
