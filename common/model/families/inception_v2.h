// Builds the convolutions of Inception v2 (GoogLeNet with batch norm; Ioffe and Szegedy, ICML 2015)
// as TensorFlow slim does, with slim's variable names.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_INCEPTION_V2_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_INCEPTION_V2_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

struct InceptionV2Options {
  double multiplier = 1.0;
  int min_depth = 16;
  // The first layer has biases in place of a batch norm, and no L2 loss. So has slim's classifier,
  // whose scope does not cover separable convolutions.
  bool biased_first_layer = false;
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes.
struct InceptionV2Endpoints {
  int mixed_4c = 0;  // stride 16
  int mixed_5c = 0;  // stride 32, the last one
};

// Returns the scope in which slim trains the classifier: variance scaling, L2 weight 4e-5, ReLU,
// and batch norm without a scale, with decay 0.9997 and epsilon 0.001.
LayerHyperparams InceptionScope(bool keras);

// Adds a separable 7x7 convolution, two convolutions and ten modules under `scope`. The first layer
// reads the image. A module joins branches of convolutions and pools. Where slim names an
// initializer, as for most 1x1 convolutions, it replaces that of `hyperparams`. CHECKs that
// `hyperparams` has a batch norm.
InceptionV2Endpoints AddInceptionV2Body(const std::string& scope, const InceptionV2Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_INCEPTION_V2_H_
