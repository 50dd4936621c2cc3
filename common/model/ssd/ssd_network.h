// Builds SSD detectors (Liu et al., ECCV 2016) as the TensorFlow Object Detection API does, with
// its variable names. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_SSD_SSD_NETWORK_H_
#define PUSHPULL_COMMON_MODEL_SSD_SSD_NETWORK_H_

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Builds the feature maps (feature_extractors.h), then a head for each of them (predictors.h).
// `ssd` must be part of a valid config.
NetworkSpec BuildSsd(const config::Ssd& ssd);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_SSD_NETWORK_H_
