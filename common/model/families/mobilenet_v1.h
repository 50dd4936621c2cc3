// Builds the convolutions of MobileNetV1 (Howard et al., 2017) as TensorFlow slim does.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V1_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V1_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

// Nodes whose values an SSD reads, as indices into NetworkSpec::nodes.
struct MobilenetV1Endpoints {
  int conv2d_3_pointwise = 0;   // stride 4
  int conv2d_5_pointwise = 0;   // stride 8
  int conv2d_11_pointwise = 0;  // stride 16
  int conv2d_13_pointwise = 0;  // stride 32
};

struct MobilenetV1Options {
  double multiplier = 1.0;
  int min_depth = 8;
  // The last block that is added: 11, or 13 for all.
  int last_block = 13;
  // Blocks 12 and 13 have 512 and 256 channels instead of 1,024: TensorFlow's backbone of FPN-Lite.
  bool narrow_end = false;
};

// Adds the layers Conv2d_0 to Conv2d_13_pointwise under `scope`. The first layer reads the image.
// CHECKs that `hyperparams` has a batch norm.
MobilenetV1Endpoints AddMobilenetV1Body(const std::string& scope, const MobilenetV1Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V1_H_
