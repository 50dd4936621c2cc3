// NetworkBuilder builds a NetworkSpec node by node, with TensorFlow slim's conventions for padding,
// batch norm, initializers, regularization and the names of variables.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "common/model/hyperparams.h"
#include "common/model/network_spec.h"

namespace pushpull {

// A convolution to add, with what comes before and after it. Nodes are identified by their index in
// NetworkSpec::nodes, and Node::kImage stands for the network's input.
struct LayerRequest {
  std::string scope;  // of the variables: "MobilenetV2/Conv"
  int input = Node::kImage;
  int kernel = 1;
  int stride = 1;
  int depth = 0;  // output channels; ignored for depthwise layers, which keep the channels
  ActivationFunction activation = ActivationFunction::kNone;
  float keep_probability = 1.0f;      // below 1: a dropout of the input comes first
  float biases_initial_value = 0.0f;  // of AddBiased
  bool fixed_padding = false;         // FixedWindow instead of SameWindow
};

// Not thread-safe. The Add functions return the index of the last node that they add. They CHECK
// that it fits its inputs.
class NetworkBuilder {
 public:
  // `image` is the shape of the network's input. With freeze_batch_norm every batch norm is frozen,
  // even if the layer's hyperparams say otherwise.
  NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm);

  // Add a convolution with its padding, its batch norm and its activation, without biases. CHECK
  // that `hyperparams` has a batch norm.
  int AddNormalized(const LayerRequest& request, const LayerHyperparams& hyperparams);
  int AddNormalizedDepthwise(const LayerRequest& request, const LayerHyperparams& hyperparams);
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
  Window WindowOf(const LayerRequest& request) const;
  int AddDropout(const LayerRequest& request);
  int AddConvolution(const LayerRequest& request, const LayerHyperparams& hyperparams, bool biased);
  int AddBatchNorm(const std::string& scope, int input, const BatchNormHyperparams& hyperparams);
  int AddActivation(const LayerRequest& request, int input);

  NetworkSpec network_;
  bool freeze_batch_norm_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
