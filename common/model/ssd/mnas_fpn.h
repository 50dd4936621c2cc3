// Builds the feature maps of MnasFPN (Chen et al., CVPR 2020) with the structure and the variable
// names of TensorFlow's Object Detection API. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_SSD_MNAS_FPN_H_
#define PUSHPULL_COMMON_MODEL_SSD_MNAS_FPN_H_

#include <vector>

#include "common/model/families/family.h"
#include "common/model/network_builder.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds a map of level 6 and four cells after `backbone` and returns the nodes of the maps of levels
// 3 to 6. All layers have hyperparameters of their own, whatever `extractor` says: He's normal
// initializer (0.536 as the deviation of separable convolutions), L2 weight 1e-4, and batch norm
// with decay 0.99 and epsilon 0.01. CHECKs that each map of `backbone.levels` is twice as large as
// the next one.
std::vector<int> AddMnasFpn(const config::SsdFeatureExtractor& extractor,
                            const SsdBackbone& backbone, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_MNAS_FPN_H_
