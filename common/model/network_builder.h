// NetworkBuilder builds a NetworkSpec node by node, with TensorFlow slim's conventions for padding,
// batch norm, initializers, regularization and the names of variables.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/model/hyperparams.h"
#include "common/model/network_spec.h"

namespace pushpull {

// A convolution to add, with what comes before and after it. Nodes are identified by their index in
// NetworkSpec::nodes, and Node::kImage stands for the network's input.
struct LayerRequest {
  std::string scope;  // of the nodes, and of the variables: "MobilenetV2/Conv"
  int input = Node::kImage;
  int kernel = 1;
  int stride = 1;
  int depth = 0;  // output channels; ignored for depthwise layers
  ActivationFunction activation = ActivationFunction::kNone;
  float keep_probability = 1.0f;      // below 1: a dropout of the input comes first
  float biases_initial_value = 0.0f;  // of AddBiased
  bool fixed_padding = false;         // FixedWindow instead of SameWindow
  bool valid_padding = false;         // none: TensorFlow's VALID instead of SAME
  // The convolution is a depthwise one, followed by one with a 1x1 window: slim's separable_conv2d.
  bool separable = false;
  // TensorFlow's channel multiplier: a depthwise convolution reads each channel so many times.
  int repetitions = 1;
  // If not empty: the scope of the weights and biases. Layers with the same one share them.
  std::string shared_scope{};
  // If not empty: the scope of the batch norm.
  std::string batch_norm_scope{};
};

// Not thread-safe. The Add functions return the index of the last node that they add. They CHECK
// that it fits its inputs.
class NetworkBuilder {
 public:
  // `image` is the shape of the network's input. With freeze_batch_norm every batch norm is frozen,
  // even if the layer's hyperparams say otherwise.
  NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm);

  // True: layers that are added from now on have FixedWindow, as if they had fixed_padding.
  void UseFixedPadding(bool fixed) { fixed_padding_ = fixed; }

  // Add a convolution with its padding, its batch norm and its activation, without biases. CHECK
  // that `hyperparams` has a batch norm.
  int AddNormalized(const LayerRequest& request, const LayerHyperparams& hyperparams);
  int AddNormalizedDepthwise(const LayerRequest& request, const LayerHyperparams& hyperparams);
  // As AddNormalized if `hyperparams` has a batch norm, else as AddBiased: slim's conv2d.
  int AddNormalizedOrBiased(const LayerRequest& request, const LayerHyperparams& hyperparams);
  // Adds a convolution with its padding and biases, and its activation, without batch norm.
  int AddBiased(const LayerRequest& request, const LayerHyperparams& hyperparams);
  // Adds a node without variables.
  int AddNode(std::string name, const Operator& op, std::vector<int> inputs);

  // The output shape of `node`, or of the image for Node::kImage.
  const FeatureShape& shape(int node) const { return ShapeOfInput(network_, node); }
  // The network may be modified.
  NetworkSpec& network() { return network_; }
  NetworkSpec Finish() && { return std::move(network_); }

 private:
  int AddVariable(std::string name, std::vector<int64_t> shape, const Initializer& initializer,
                  float l2_weight = 0.0f);
  int AddChannels(std::string name, int channels, float initial_value);
  // The variable `name` of a layer's convolution. Makes it unless the layer shares it with an
  // earlier one.
  int AddWeights(const LayerRequest& request, absl::string_view name, std::vector<int64_t> shape,
                 const config::WeightInitializer& initializer, float l2_weight);
  int AddBiases(const LayerRequest& request);
  std::optional<int> FindShared(const LayerRequest& request, const std::string& name) const;
  Window WindowOf(const LayerRequest& request) const;
  int AddDropout(const LayerRequest& request);
  int AddDepthwise(const LayerRequest& request, const std::string& name,
                   const LayerHyperparams& hyperparams);
  int AddConvolution(const LayerRequest& request, const LayerHyperparams& hyperparams, bool biased);
  int AddBatchNorm(const LayerRequest& request, int input, const BatchNormHyperparams& hyperparams);
  int AddActivation(const LayerRequest& request, int input);

  NetworkSpec network_;
  bool freeze_batch_norm_;
  bool fixed_padding_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
