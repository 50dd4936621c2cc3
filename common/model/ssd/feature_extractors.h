// Builds the feature maps of an SSD detector: the backbone and what follows from it, as
// TensorFlow's Object Detection API does, with its variable names. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_SSD_FEATURE_EXTRACTORS_H_
#define PUSHPULL_COMMON_MODEL_SSD_FEATURE_EXTRACTORS_H_

#include <vector>

#include "common/model/network_builder.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds the layers under the scope FeatureExtractor and returns the nodes of the feature maps, from
// the largest to the smallest. The first layer reads the image. `ssd` must be part of a valid
// config.
//
// The backbone has the training scope of its slim network. With
// override_base_feature_extractor_hyperparams it has the conv_hyperparams of the extractor, but for
// what slim's definition of the network fixes, such as its activations. All other layers always
// follow conv_hyperparams. Their regularizer covers depthwise weights too, as in slim's
// separable_conv2d. Freezes the backbone's batch norms if BatchNormsToFreeze says kBackbone.
std::vector<int> AddFeatureMaps(const config::Ssd& ssd, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_FEATURE_EXTRACTORS_H_
