// Builds the backbones of MobileDet (Xiong et al., CVPR 2021) with the structure and the variable
// names of TensorFlow's Object Detection API. Each variant was searched for one kind of device.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_MOBILEDET_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_MOBILEDET_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

enum class MobiledetVariant { kCpu, kDsp, kEdgeTpu, kGpu };

struct MobiledetOptions {
  MobiledetVariant variant = MobiledetVariant::kCpu;
  double multiplier = 1.0;  // of all depths, which are rounded to multiples of 8
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes. Each is
// the last node at its stride.
struct MobiledetEndpoints {
  int c1 = 0;  // stride 2
  int c2 = 0;  // stride 4
  int c3 = 0;  // stride 8
  int c4 = 0;  // stride 16
  int c5 = 0;  // stride 32
};

// Returns what TensorFlow uses in these backbones whatever the config says: He's normal
// initializer, L2 weight 4e-5 on all weights, and batch norm with decay 0.99 and epsilon 0.01.
LayerHyperparams MobiledetScope(bool keras);

// Adds a convolution and the blocks of the variant under `scope`. The first layer reads the image.
//
// The CPU variant has hard-swish, and squeeze-and-excitation in each block; the others have ReLU6.
// The activation of `hyperparams` is not used. If the initializer scales the variance by the fan
// in, a depthwise convolution counts the weights of a single channel as its fan in. CHECKs that
// `hyperparams` has a batch norm.
MobiledetEndpoints AddMobiledetBody(const std::string& scope, const MobiledetOptions& options,
                                    const LayerHyperparams& hyperparams, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_MOBILEDET_H_
