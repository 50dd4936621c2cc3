// Builds the convolutions of MobileNetV2 (Sandler et al., CVPR 2018) as TensorFlow slim does.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V2_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V2_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

// How the multiplier changes the channels of the last 1x1 convolution.
enum class LastDepthScaling {
  kBoth,      // any multiplier scales them, as in all layers: TensorFlow 1's detectors
  kOnlyUp,    // only a multiplier above 1 scales them: slim's classifier
  kOnlyDown,  // only a multiplier below 1 scales them: TensorFlow 2's detectors
};

struct MobilenetV2Widths {
  double multiplier = 1.0;
  int min_depth = 8;
  LastDepthScaling last_depth_scaling = LastDepthScaling::kBoth;
  // Before the multiplier. 0: there is no last 1x1 convolution.
  int last_depth = 1280;
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes.
struct MobilenetV2Endpoints {
  int layer_4 = 0;             // stride 4: expanded_conv_2
  int layer_7 = 0;             // stride 8: expanded_conv_5
  int layer_14 = 0;            // stride 16: expanded_conv_12
  int layer_15_expansion = 0;  // stride 16: the expansion of expanded_conv_13
  int layer_18 = 0;            // stride 32: expanded_conv_16
  int layer_19 = 0;            // stride 32: the last convolution, or layer_18 if there is none
};

// Adds a convolution, 17 inverted residual blocks and the last 1x1 convolution under `scope`. The
// first layer reads the image. CHECKs that `hyperparams` has a batch norm.
MobilenetV2Endpoints AddMobilenetV2Body(const std::string& scope, const MobilenetV2Widths& widths,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V2_H_
