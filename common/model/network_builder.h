// NetworkBuilder builds a NetworkSpec layer by layer, with TensorFlow slim's conventions for
// padding, batch norm, initializers and regularization.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_spec.h"

namespace pushpull {

// A layer to add. Layers are identified by their index in NetworkSpec::layers, and
// LayerSpec::kImage stands for the network's input.
struct LayerRequest {
  LayerKind kind = LayerKind::kConvolution;
  std::string scope;  // the full scope: "MobilenetV2/Conv"
  int input = LayerSpec::kImage;
  int kernel = 1;
  int stride = 1;
  int depth = 0;  // output channels; ignored for depthwise layers, which keep the channels
  ActivationFunction activation = ActivationFunction::kNone;
};

// Not thread-safe. The Add functions return the index of the new layer.
class NetworkBuilder {
 public:
  // `image` is the shape of the network's input. With freeze_batch_norm every batch norm is frozen,
  // even if the layer's hyperparams say otherwise.
  NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm);

  // Adds a layer with SAME padding and batch norm, without biases. CHECKs that `hyperparams` has a
  // batch norm.
  int AddNormalized(const LayerRequest& request, const LayerHyperparams& hyperparams);
  // Adds a layer with SAME padding and biases, without batch norm.
  int AddBiased(const LayerRequest& request, const LayerHyperparams& hyperparams);
  int AddGlobalAveragePool(const std::string& scope, int input);

  // The output shape of `layer`, or of the image for LayerSpec::kImage.
  const FeatureShape& shape(int layer) const;
  // The layer and the network may be modified. A reference to a layer is valid until the next Add.
  LayerSpec& layer(int index) { return network_.layers[index]; }
  NetworkSpec& network() { return network_; }
  NetworkSpec Finish() && { return std::move(network_); }

 private:
  int Add(const LayerRequest& request, const LayerHyperparams& hyperparams, LayerSpec layer);

  NetworkSpec network_;
  const bool freeze_batch_norm_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
