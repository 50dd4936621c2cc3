// Builds the predictors of an SSD detector: the layers between its feature maps and its box codes
// and class scores, as TensorFlow's Object Detection API does, with its variable names.
// Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_SSD_PREDICTORS_H_
#define PUSHPULL_COMMON_MODEL_SSD_PREDICTORS_H_

#include <vector>

#include "common/model/detection_spec.h"
#include "common/model/network_builder.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds the predictor of `ssd`, which must be part of a valid config, to each feature map. Returns
// one head per node of `maps`. `anchors` has the number of anchors per location of each map.
//
// convolutional_box_predictor: The scopes are BoxPredictor_<i>/BoxEncodingPredictor and
// BoxPredictor_<i>/ClassPredictor. If there is one map only, they lack the first part, unless the
// type ends in "_keras".
//
// weight_shared_convolutional_box_predictor: The scope is WeightSharedConvolutionalBoxPredictor.
// All maps share the weights. The layers of the towers have ReLU6, whatever activation the config
// names, except with SWISH. The batch norms of map i have the scope
// <layer>/BatchNorm/feature_<i>. Maps whose number of channels is not the most frequent one get a
// 1x1 convolution first, and so do all others if there is any such map.
std::vector<DetectionHead> AddPredictors(const config::Ssd& ssd, const std::vector<int>& maps,
                                         const std::vector<int>& anchors, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_PREDICTORS_H_
