// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/model/network_builder.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

NetworkBuilder::NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm)
    : freeze_batch_norm_(freeze_batch_norm) {
  network_.name = std::move(name);
  network_.input = image;
}

int NetworkBuilder::AddNormalized(const LayerRequest& request,
                                  const LayerHyperparams& hyperparams) {
  CHECK(hyperparams.batch_norm.has_value()) << request.scope;
  const int convolution = AddConvolution(request, hyperparams, /*biased=*/false);
  return AddActivation(request, AddBatchNorm(request, convolution, *hyperparams.batch_norm));
}

int NetworkBuilder::AddNormalizedDepthwise(const LayerRequest& request,
                                           const LayerHyperparams& hyperparams) {
  CHECK(hyperparams.batch_norm.has_value()) << request.scope;
  const int node = AddDepthwise(request, request.scope, hyperparams);
  return AddActivation(request, AddBatchNorm(request, node, *hyperparams.batch_norm));
}

int NetworkBuilder::AddNormalizedOrBiased(const LayerRequest& request,
                                          const LayerHyperparams& hyperparams) {
  return hyperparams.batch_norm.has_value() ? AddNormalized(request, hyperparams)
                                            : AddBiased(request, hyperparams);
}

int NetworkBuilder::AddBiased(const LayerRequest& request, const LayerHyperparams& hyperparams) {
  return AddActivation(request, AddConvolution(request, hyperparams, /*biased=*/true));
}

int NetworkBuilder::AddNode(std::string name, const Operator& op, std::vector<int> inputs) {
  Node node{std::move(name), op, std::move(inputs), {}};
  std::vector<FeatureShape> shapes;
  for (const int input : node.inputs) shapes.push_back(shape(input));
  const absl::StatusOr<FeatureShape> output = OutputShape(node.op, shapes);
  CHECK(output.ok()) << node.name << " " << output.status().message();
  node.shape = *output;
  network_.nodes.push_back(std::move(node));
  return static_cast<int>(network_.nodes.size()) - 1;
}

int NetworkBuilder::AddVariable(std::string name, std::vector<int64_t> shape,
                                const Initializer& initializer, float l2_weight) {
  VariableSpec variable;
  variable.name = std::move(name);
  variable.shape = std::move(shape);
  variable.initializer = initializer;
  variable.l2_weight = l2_weight;
  network_.variables.push_back(std::move(variable));
  return static_cast<int>(network_.variables.size()) - 1;
}

int NetworkBuilder::AddChannels(std::string name, int channels, float initial_value) {
  return AddVariable(std::move(name), {channels},
                     {Initializer::Kind::kConstant, initial_value, 0.0f});
}

std::optional<int> NetworkBuilder::FindShared(const LayerRequest& request,
                                              const std::string& name) const {
  if (request.shared_scope.empty()) return std::nullopt;
  for (size_t i = 0; i < network_.variables.size(); ++i) {
    if (network_.variables[i].name == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

int NetworkBuilder::AddWeights(const LayerRequest& request, absl::string_view name,
                               std::vector<int64_t> shape,
                               const config::WeightInitializer& initializer, float l2_weight) {
  const std::string full =
      absl::StrCat(request.shared_scope.empty() ? request.scope : request.shared_scope, "/", name);
  if (const std::optional<int> shared = FindShared(request, full)) return *shared;
  const Initializer resolved = ResolveInitializer(initializer, shape);
  return AddVariable(full, std::move(shape), resolved, l2_weight);
}

int NetworkBuilder::AddBiases(const LayerRequest& request) {
  const std::string name =
      absl::StrCat(request.shared_scope.empty() ? request.scope : request.shared_scope, "/biases");
  if (const std::optional<int> shared = FindShared(request, name)) return *shared;
  return AddChannels(name, request.depth, request.biases_initial_value);
}

Window NetworkBuilder::WindowOf(const LayerRequest& request) const {
  if (request.valid_padding) return {request.kernel, request.stride, {}};
  return request.fixed_padding || fixed_padding_
             ? FixedWindow(request.kernel, request.stride)
             : SameWindow(shape(request.input), request.kernel, request.stride);
}

int NetworkBuilder::AddDropout(const LayerRequest& request) {
  if (request.keep_probability >= 1.0f) return request.input;
  return AddNode(absl::StrCat(request.scope, "/Dropout"), op::Dropout{request.keep_probability},
                 {request.input});
}

int NetworkBuilder::AddDepthwise(const LayerRequest& request, const std::string& name,
                                 const LayerHyperparams& hyperparams) {
  int input = AddDropout(request);
  op::DepthwiseConvolution depthwise;
  depthwise.window = WindowOf(request);
  depthwise.weights =
      AddWeights(request, "depthwise_weights",
                 {request.kernel, request.kernel, shape(input).channels, request.repetitions},
                 hyperparams.depthwise_initializer.value_or(hyperparams.initializer),
                 hyperparams.regularize_depthwise ? hyperparams.l2_weight : 0.0f);
  if (request.repetitions > 1) {
    input = AddNode(absl::StrCat(request.scope, "/repeat"), op::RepeatChannels{request.repetitions},
                    {input});
  }
  return AddNode(name, depthwise, {input});
}

int NetworkBuilder::AddConvolution(const LayerRequest& request, const LayerHyperparams& hyperparams,
                                   bool biased) {
  op::Convolution convolution;
  int input = Node::kImage;
  if (request.separable) {
    input = AddDepthwise(request, absl::StrCat(request.scope, "/depthwise"), hyperparams);
  } else {
    input = AddDropout(request);
    convolution.window = WindowOf(request);
  }
  convolution.channels = request.depth;
  const int64_t kernel = convolution.window.kernel;
  convolution.weights = AddWeights(request, request.separable ? "pointwise_weights" : "weights",
                                   {kernel, kernel, shape(input).channels, request.depth},
                                   hyperparams.initializer, hyperparams.l2_weight);
  if (biased) convolution.biases = AddBiases(request);
  return AddNode(request.scope, convolution, {input});
}

int NetworkBuilder::AddBatchNorm(const LayerRequest& request, int input,
                                 const BatchNormHyperparams& hyperparams) {
  const std::string prefix = request.batch_norm_scope.empty()
                                 ? absl::StrCat(request.scope, "/BatchNorm")
                                 : request.batch_norm_scope;
  const int channels = shape(input).channels;
  op::BatchNorm norm;
  norm.decay = hyperparams.decay;
  norm.epsilon = hyperparams.epsilon;
  norm.frozen = hyperparams.frozen || freeze_batch_norm_;
  norm.bias_corrected = hyperparams.bias_corrected;
  if (hyperparams.scale) norm.gamma = AddChannels(prefix + "/gamma", channels, 1.0f);
  if (hyperparams.center) norm.beta = AddChannels(prefix + "/beta", channels, 0.0f);
  norm.moving_mean = AddChannels(prefix + "/moving_mean", channels, 0.0f);
  norm.moving_variance = AddChannels(prefix + "/moving_variance", channels, 1.0f);
  for (const int statistic : {norm.moving_mean, norm.moving_variance}) {
    VariableSpec& variable = network_.variables[statistic];
    variable.kind = VariableKind::kMovingStatistic;
    variable.moving_average_decay = norm.decay;
    variable.frozen = norm.frozen;
  }
  return AddNode(prefix, norm, {input});
}

int NetworkBuilder::AddActivation(const LayerRequest& request, int input) {
  if (request.activation == ActivationFunction::kNone) return input;
  return AddNode(absl::StrCat(request.scope, "/", ActivationName(request.activation)),
                 op::Activation{request.activation}, {input});
}

}  // namespace pushpull
