// Says which batch norms of a detector model.ssd.freeze_batchnorm freezes. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_FROZEN_BATCH_NORMS_H_
#define PUSHPULL_COMMON_CONFIG_FROZEN_BATCH_NORMS_H_

#include "protos/pipeline.pb.h"

namespace pushpull {

enum class FrozenBatchNorms {
  kNone,
  kBackbone,  // those of the backbone, and not those of extra layers, pyramid and predictors
  kAll,
};

// Returns what freeze_batchnorm freezes, as TensorFlow's Object Detection API does; kNone if the
// field is false. In TensorFlow 2 (types that end in "_keras") it freezes all. TensorFlow 1 sets it
// in a scope around the feature extractor and the predictor, and a scope within that one wins:
// - conv_hyperparams, which has batch_norm.train instead. Extra layers, pyramids and predictors
//   follow it, and so does the backbone with override_base_feature_extractor_hyperparams.
// - the scopes of their own that MobileDet's backbone and all of MnasFPN have, which train.
FrozenBatchNorms BatchNormsToFreeze(const config::Ssd& ssd);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_FROZEN_BATCH_NORMS_H_
