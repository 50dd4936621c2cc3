// From model.ssd of a pipeline config to the plain values of a DetectionSpec.
#ifndef PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_
#define PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_

#include "common/model/detection_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// All but the heads, of a config that CheckSsd has nothing against. As in TensorFlow the anchors'
// base sizes are shares of the shorter side, so on an image that is not square they are scaled down
// along the longer one.
DetectionSpec ResolveDetection(const config::Ssd& ssd);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_
