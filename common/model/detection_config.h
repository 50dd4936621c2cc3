// Converts model.ssd of a pipeline config into a DetectionSpec. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_
#define PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_

#include "common/model/detection_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns the DetectionSpec of a valid config, with `heads` left empty. As in TensorFlow, the base
// sizes of anchors in the config are fractions of the image's shorter side. The spec has fractions
// of the height and the width, so the value for the longer side is smaller if the image is not
// square.
DetectionSpec ResolveDetection(const config::Ssd& ssd);

// Returns the number of anchors at each location of feature map `map`.
int AnchorsPerLocation(const AnchorSpec& spec, int map);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_DETECTION_CONFIG_H_
