#include "worker/model/fused_network.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

using Kind = FusedLayer::Kind;

// The activation as a part of a fused layer; nullopt if its derivative is not 0 or 1 everywhere.
std::optional<FusedActivation> AsFusedActivation(ActivationFunction function) {
  if (function == ActivationFunction::kNone) return FusedActivation::kNone;
  if (function == ActivationFunction::kRelu) return FusedActivation::kRelu;
  if (function == ActivationFunction::kRelu6) return FusedActivation::kRelu6;
  return std::nullopt;
}

// Visits the nodes in their order. Each either begins a layer or joins the layer that it reads. A
// node may join only if nothing else reads what it reads, because a fused layer has one value.
class Fuser {
 public:
  explicit Fuser(const NetworkSpec& network)
      : network_(network),
        readers_(FindReaders(network)),
        layer_of_(network.nodes.size(), FusedLayer::kNone) {}

  absl::StatusOr<FusedNetwork> Fuse() && {
    for (node_ = 0; node_ < static_cast<int>(network_.nodes.size()); ++node_) {
      PP_RETURN_IF_ERROR(std::visit(*this, network_.nodes[node_].op));
    }
    for (const int output : OutputNodes(network_)) {
      const FusedLayer& layer = result_.layers[layer_of_[output]];
      if (!readers_[output].empty() || layer.batch_norm.has_value() || HasValueOfItsOwn(layer)) {
        return Error(output,
                     "is an output, but has batch norm, an activation or a sum, or is read by "
                     "another node");
      }
      result_.outputs.push_back(layer_of_[output]);
    }
    return std::move(result_);
  }

  absl::Status operator()(const op::Convolution& convolution) {
    FusedLayer layer;
    layer.kind = Kind::kConvolution;
    layer.window = convolution.window;
    layer.weights = convolution.weights;
    layer.biases = convolution.biases;
    return Begin(std::move(layer));
  }

  absl::Status operator()(const op::DepthwiseConvolution& convolution) {
    FusedLayer layer;
    layer.kind = Kind::kDepthwise;
    layer.window = convolution.window;
    layer.weights = convolution.weights;
    return Begin(std::move(layer));
  }

  absl::Status operator()(const op::GlobalAveragePool&) {
    if (DropoutBefore() != nullptr) return Error(node_, "reads a dropout");
    FusedLayer layer;
    layer.kind = Kind::kGlobalAveragePool;
    return Begin(std::move(layer));
  }

  absl::Status operator()(const op::BatchNorm& norm) {
    FusedLayer* const layer = Joinable(Input());
    if (layer == nullptr || layer->batch_norm.has_value() || HasValueOfItsOwn(*layer) ||
        layer->kind == Kind::kGlobalAveragePool || layer->kind == Kind::kGather) {
      return Error(node_, "does not follow a convolution that nothing else reads");
    }
    layer->batch_norm = norm;
    return Join(Input());
  }

  absl::Status operator()(const op::Activation& activation) {
    FusedLayer* const layer = Joinable(Input());
    const std::optional<FusedActivation> fused = AsFusedActivation(activation.function);
    if (layer == nullptr || HasValueOfItsOwn(*layer) || !fused.has_value()) return BeginGather();
    layer->activation = *fused;
    return Join(Input());
  }

  absl::Status operator()(const op::Add&) {
    const std::vector<int>& inputs = network_.nodes[node_].inputs;
    for (const auto& [sum, skip] :
         {std::pair(inputs[0], inputs[1]), std::pair(inputs[1], inputs[0])}) {
      FusedLayer* const layer = Joinable(sum);
      if (layer == nullptr || HasValueOfItsOwn(*layer) || !CanBeSkip(skip, sum)) continue;
      layer->skip = layer_of_[skip];
      return Join(sum);
    }
    return BeginGather();
  }

  absl::Status operator()(const op::Multiply&) { return BeginGather(); }
  absl::Status operator()(const op::Concat&) { return BeginGather(); }
  absl::Status operator()(const op::MaxPool&) { return BeginGather(); }
  absl::Status operator()(const op::AveragePool&) { return BeginGather(); }
  absl::Status operator()(const op::Upsample&) { return BeginGather(); }
  absl::Status operator()(const op::RepeatChannels&) { return BeginGather(); }

  absl::Status operator()(const op::Dropout&) {
    if (Input() == Node::kImage) return Error(node_, "reads the image");
    if (readers_[node_].size() != 1) return Error(node_, "is not read by exactly one node");
    return absl::OkStatus();
  }

 private:
  absl::Status Error(int node, absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat("node ", network_.nodes[node].name, " (",
                                                   OperatorName(network_.nodes[node].op), ") ",
                                                   problem, "; this cannot be computed"));
  }

  static bool HasValueOfItsOwn(const FusedLayer& layer) {
    return layer.activation != FusedActivation::kNone || layer.skip != FusedLayer::kNone;
  }

  int Input() const { return network_.nodes[node_].inputs[0]; }

  const op::Dropout* DropoutBefore() const {
    return Input() == Node::kImage ? nullptr
                                   : std::get_if<op::Dropout>(&network_.nodes[Input()].op);
  }

  // The layer of node `input`, if the node that is being visited is the only one to read it.
  FusedLayer* Joinable(int input) {
    if (input == Node::kImage || readers_[input].size() != 1) return nullptr;
    const int layer = layer_of_[input];
    return layer == FusedLayer::kNone ? nullptr : &result_.layers[layer];
  }

  absl::Status Join(int input) {
    layer_of_[node_] = layer_of_[input];
    return absl::OkStatus();
  }

  absl::Status BeginGather() {
    for (const int input : network_.nodes[node_].inputs) {
      if (input != Node::kImage && layer_of_[input] == FusedLayer::kNone) {
        return Error(node_, "reads a dropout");
      }
    }
    FusedLayer layer;
    layer.kind = Kind::kGather;
    layer.gather = network_.nodes[node_].op;
    return Begin(std::move(layer));
  }

  absl::Status Begin(FusedLayer layer) {
    const Node& node = network_.nodes[node_];
    std::vector<int> inputs = node.inputs;
    if (const op::Dropout* const dropout = DropoutBefore()) {
      layer.keep_probability = dropout->keep_probability;
      inputs = network_.nodes[Input()].inputs;
    }
    layer.name = node.name;
    for (const int input : inputs) {
      layer.inputs.push_back(input == Node::kImage ? FusedLayer::kImage : layer_of_[input]);
      layer.input_shapes.push_back(ShapeOfInput(network_, input));
    }
    layer.output_shape = node.shape;
    layer_of_[node_] = static_cast<int>(result_.layers.size());
    result_.layers.push_back(std::move(layer));
    return absl::OkStatus();
  }

  // The layer whose operator reads what node `reader` reads; num_nodes if it is not known yet.
  int LayerThatReads(int reader) const {
    if (std::holds_alternative<op::Dropout>(network_.nodes[reader].op)) {
      reader = readers_[reader].empty() ? node_ : readers_[reader][0];
    }
    return reader < node_ ? layer_of_[reader] : static_cast<int>(network_.nodes.size());
  }

  // True if the layer of node `sum` can add the value of node `skip`. In the backward pass the
  // gradients of both are one buffer. So only layers before the sum's may read the skip too,
  // and there must be one, because its backward pass finishes the gradient.
  bool CanBeSkip(int skip, int sum) const {
    if (skip == Node::kImage || skip == sum) return false;
    const std::vector<int>& readers = readers_[skip];
    if (layer_of_[skip] == FusedLayer::kNone || readers.size() < 2) return false;
    return std::all_of(readers.begin(), readers.end(), [&](int reader) {
      return reader == node_ || LayerThatReads(reader) < layer_of_[sum];
    });
  }

  const NetworkSpec& network_;
  const std::vector<std::vector<int>> readers_;
  FusedNetwork result_;
  std::vector<int> layer_of_;  // per node; kNone for a dropout
  int node_ = 0;               // the node that is being visited
};

}  // namespace

absl::StatusOr<FusedNetwork> FuseNetwork(const NetworkSpec& network) {
  return Fuser(network).Fuse();
}

ConvolutionShape ConvolutionOf(const FusedLayer& layer, int64_t samples) {
  const FeatureShape& in = layer.input_shape();
  const SpatialPadding& padding = layer.window.padding;
  return {{samples, in.height, in.width, in.channels},
          layer.output_shape.channels,
          layer.window.kernel,
          layer.window.stride,
          {padding.top, padding.bottom, padding.left, padding.right}};
}

}  // namespace pushpull
