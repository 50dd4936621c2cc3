#include "common/model/network_spec.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

absl::Status NodeError(const Node& node, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("node ", node.name, " (", OperatorName(node.op), ") ", problem));
}

// Checks that the variable `index` exists and has this shape.
absl::Status CheckVariable(const NetworkSpec& network, const Node& node, int index,
                           const std::vector<int64_t>& shape) {
  if (index == op::kNoVariable) return absl::OkStatus();
  if (index < 0 || index >= static_cast<int>(network.variables.size())) {
    return NodeError(node, "names a variable that does not exist");
  }
  const VariableSpec& variable = network.variables[index];
  if (variable.shape == shape) return absl::OkStatus();
  return NodeError(node, absl::StrCat("reads ", variable.name, " of shape [",
                                      absl::StrJoin(variable.shape, ", "), "], expected [",
                                      absl::StrJoin(shape, ", "), "]"));
}

// The shape of a depthwise convolution's weights, for an input of `channels`. If they are for
// several repetitions of each channel, it is the one that they have.
std::vector<int64_t> DepthwiseShape(const NetworkSpec& network, int weights, int64_t kernel,
                                    int64_t channels) {
  int64_t times = 1;
  if (weights >= 0 && weights < static_cast<int>(network.variables.size())) {
    const std::vector<int64_t>& shape = network.variables[weights].shape;
    if (shape.size() == 4 && shape[3] > 1 && channels % shape[3] == 0) times = shape[3];
  }
  return {kernel, kernel, channels / times, times};
}

absl::Status CheckVariables(const NetworkSpec& network, const Node& node,
                            const FeatureShape& input) {
  const std::vector<int64_t> per_channel = {node.shape.channels};
  if (const auto* convolution = std::get_if<op::Convolution>(&node.op)) {
    const int64_t kernel = convolution->window.kernel;
    if (convolution->weights == op::kNoVariable) return NodeError(node, "has no weights");
    PP_RETURN_IF_ERROR(CheckVariable(network, node, convolution->weights,
                                     {kernel, kernel, input.channels, node.shape.channels}));
    return CheckVariable(network, node, convolution->biases, per_channel);
  }
  if (const auto* depthwise = std::get_if<op::DepthwiseConvolution>(&node.op)) {
    const int64_t kernel = depthwise->window.kernel;
    if (depthwise->weights == op::kNoVariable) return NodeError(node, "has no weights");
    return CheckVariable(network, node, depthwise->weights,
                         DepthwiseShape(network, depthwise->weights, kernel, input.channels));
  }
  if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) {
    if (norm->moving_mean == op::kNoVariable || norm->moving_variance == op::kNoVariable) {
      return NodeError(node, "has no moving statistics");
    }
    for (const int variable : VariablesOf(node.op)) {
      PP_RETURN_IF_ERROR(CheckVariable(network, node, variable, per_channel));
    }
  }
  return absl::OkStatus();
}

// Nodes may share weights and biases. The statistics of a batch norm are those of one value.
absl::Status CheckSharing(const NetworkSpec& network) {
  std::set<int> of_batch_norms;
  for (const Node& node : network.nodes) {
    if (!std::holds_alternative<op::BatchNorm>(node.op)) continue;
    for (const int variable : VariablesOf(node.op)) {
      if (of_batch_norms.insert(variable).second) continue;
      return NodeError(node, absl::StrCat("shares ", network.variables[variable].name,
                                          " with another batch norm"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const NetworkSpec& network, int n) {
  const Node& node = network.nodes[n];
  std::vector<FeatureShape> inputs;
  for (const int input : node.inputs) {
    if (input < Node::kImage || input >= n) {
      return NodeError(node, "reads a node that does not come before it");
    }
    inputs.push_back(ShapeOfInput(network, input));
  }
  const absl::StatusOr<FeatureShape> shape = OutputShape(node.op, inputs);
  if (!shape.ok()) return NodeError(node, shape.status().message());
  if (!(*shape == node.shape)) {
    return NodeError(node, absl::StrCat("has the shape ", ToString(node.shape),
                                        ", but its inputs give ", ToString(*shape)));
  }
  return CheckVariables(network, node, inputs[0]);
}

// The box node must give kBoxCodeSize values per anchor, the class node one per class and one for
// the background, on a map of the head's size.
absl::Status CheckHead(const NetworkSpec& network, const DetectionHead& head) {
  const int columns[] = {kBoxCodeSize, network.detection->num_classes + 1};
  const int nodes[] = {head.box_node, head.class_node};
  for (int i = 0; i < 2; ++i) {
    if (nodes[i] < 0 || nodes[i] >= static_cast<int>(network.nodes.size())) {
      return absl::InvalidArgumentError("a detection head names a node that does not exist");
    }
    const Node& node = network.nodes[nodes[i]];
    const FeatureShape expected = {head.height, head.width, head.anchors_per_location * columns[i]};
    if (!(node.shape == expected)) {
      return NodeError(node, absl::StrCat("gives ", ToString(node.shape),
                                          " to a detection head that reads ", ToString(expected)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const NetworkSpec& network) {
  if (network.detection.has_value()) {
    for (const DetectionHead& head : network.detection->heads) {
      PP_RETURN_IF_ERROR(CheckHead(network, head));
    }
  } else if (const FeatureShape scores = {1, 1, network.num_classes};
             !(network.nodes.back().shape == scores)) {
    return NodeError(network.nodes.back(), "does not give one score per class");
  }
  const std::vector<int> outputs = OutputNodes(network);
  const std::vector<std::vector<int>> readers = FindReaders(network);
  for (int n = 0; n < static_cast<int>(network.nodes.size()); ++n) {
    const bool is_output = std::count(outputs.begin(), outputs.end(), n) > 0;
    if (!is_output && readers[n].empty()) {
      return NodeError(network.nodes[n], "is neither read nor an output");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> OutputNodes(const NetworkSpec& network) {
  if (!network.detection.has_value()) return {static_cast<int>(network.nodes.size()) - 1};
  std::vector<int> nodes;
  for (const DetectionHead& head : network.detection->heads) {
    nodes.push_back(head.box_node);
    nodes.push_back(head.class_node);
  }
  return nodes;
}

const FeatureShape& ShapeOfInput(const NetworkSpec& network, int input) {
  return input == Node::kImage ? network.input : network.nodes[input].shape;
}

std::vector<std::vector<int>> FindReaders(const NetworkSpec& network) {
  std::vector<std::vector<int>> readers(network.nodes.size());
  for (int n = 0; n < static_cast<int>(network.nodes.size()); ++n) {
    for (const int input : network.nodes[n].inputs) {
      if (input != Node::kImage) readers[input].push_back(n);
    }
  }
  return readers;
}

absl::Status CheckNetwork(const NetworkSpec& network) {
  if (network.nodes.empty()) return absl::InvalidArgumentError("the network has no nodes");
  std::set<std::string> names;
  for (int n = 0; n < static_cast<int>(network.nodes.size()); ++n) {
    PP_RETURN_IF_ERROR(CheckNode(network, n));
    if (!names.insert(network.nodes[n].name).second) {
      return NodeError(network.nodes[n], "has the name of another node");
    }
  }
  PP_RETURN_IF_ERROR(CheckSharing(network));
  return CheckOutputs(network);
}

double InitialStatisticsShare(const NetworkSpec& network, int64_t num_updates) {
  double share = 0.0;
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    if (norm.frozen || norm.bias_corrected) return;
    share = std::max(share, std::pow(norm.decay, num_updates));
  });
  return share;
}

}  // namespace pushpull
