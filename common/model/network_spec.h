// NetworkSpec describes a network as data: a graph of operators with their shapes, and the
// variables that they read. It does not compute anything. The server takes the variables from it,
// the worker makes fused layers of it (worker/model/fused_network.h), and the exporter writes it as
// ONNX. The structs are plain values that nobody modifies once they are built. The functions are
// thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/model/detection_spec.h"
#include "common/model/image_resize.h"
#include "common/model/operators.h"
#include "common/model/variable_layout.h"

namespace pushpull {

// An operator and the nodes that it reads. Several nodes may read the same node.
struct Node {
  static constexpr int kImage = -1;  // in `inputs`: the network's input

  std::string name;  // unique; "MobilenetV2/expanded_conv_1/expand"
  Operator op;
  std::vector<int> inputs;  // indices of earlier nodes, or kImage
  FeatureShape shape;       // of the node's value for one image
  bool operator==(const Node&) const = default;
};

struct NetworkSpec {
  std::string name;  // "MobilenetV2"
  FeatureShape input;
  // How an image is scaled and padded to the input. nullopt: it is scaled to fill the input.
  std::optional<AspectRatioResize> keep_aspect_ratio;
  int num_classes = 0;  // without a detector's background class
  float label_smoothing = 0.0f;
  // In topological order. The last node of a classifier gives the class scores,
  // [1, 1, num_classes].
  std::vector<Node> nodes;
  // In the order of the nodes; those of a node in the order weights, biases, gamma, beta, moving
  // mean, moving variance. A variable that several nodes share is that of the first of them. The
  // moving statistics of a frozen batch norm are frozen.
  std::vector<VariableSpec> variables;
  // Set for a detector. Its heads name the nodes that give boxes and scores.
  std::optional<DetectionSpec> detection;
  bool operator==(const NetworkSpec&) const = default;
};

// Returns the indices of the nodes that the loss reads. For a classifier this is the last node. For
// a detector these are box_node and class_node of the first head, then of the second, and so on.
std::vector<int> OutputNodes(const NetworkSpec& network);

// Returns the shape of an input of a node, or of the image for Node::kImage.
const FeatureShape& ShapeOfInput(const NetworkSpec& network, int input);

// For each node, the nodes that read it, in increasing order. A node that reads another one twice
// is listed twice.
std::vector<std::vector<int>> FindReaders(const NetworkSpec& network);

// INVALID_ARGUMENT: the graph is not one that a network may have. A node reads itself, a later one
// or none; its inputs do not have shapes that its operator takes, or its shape is not what they
// give; it names variables that do not exist or have another shape; it is a batch norm that shares
// variables with another one; it is neither read nor an output; or it is an output that does not
// have the shape that the loss reads. The message names the node.
absl::Status CheckNetwork(const NetworkSpec& network);

// Returns the largest weight that the initial value still has in any moving statistic after
// num_updates updates: the maximum of decay^num_updates over the batch norms that are neither
// frozen nor bias-corrected. Returns 0 if there are none.
double InitialStatisticsShare(const NetworkSpec& network, int64_t num_updates);

// Calls f(const op::BatchNorm&) for each batch norm of the network.
template <typename F>
void ForEachBatchNorm(const NetworkSpec& network, F f) {
  for (const Node& node : network.nodes) {
    if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) f(*norm);
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
