// Puts a network together layer by layer, with TensorFlow slim's conventions for padding, batch
// norm, initializers and regularisation.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_BUILDER_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_spec.h"

namespace pushpull {

// A layer to add. `input` and the result of Add are indices into NetworkSpec::layers.
struct LayerRequest {
  LayerKind kind = LayerKind::kConvolution;
  std::string scope;  // in full: "MobilenetV2/Conv"
  int input = LayerSpec::kImage;
  int kernel = 1;
  int stride = 1;
  int depth = 0;  // output channels; ignored by depthwise layers and pools
  ActivationFunction activation = ActivationFunction::kNone;
};

// Not thread-safe.
class NetworkBuilder {
 public:
  // `freeze_batch_norm`: of every layer, whatever its hyperparams say.
  NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm);

  // SAME padding, batch norm, no biases. CHECKs that the hyperparams have a batch norm.
  int AddNormalized(const LayerRequest& request, const LayerHyperparams& hyperparams);
  // SAME padding, biases, no batch norm.
  int AddBiased(const LayerRequest& request, const LayerHyperparams& hyperparams);
  int AddGlobalAveragePool(const std::string& scope, int input);

  const FeatureShape& shape(int layer) const;
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
