// Tested by tests/common/model/ssd/frozen_batch_norm_test.cc.
#include "common/config/frozen_batch_norms.h"

#include <optional>

#include "common/config/model_types.h"

namespace pushpull {

FrozenBatchNorms BatchNormsToFreeze(const config::Ssd& ssd) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  if (!ssd.freeze_batchnorm()) return FrozenBatchNorms::kNone;
  if (IsKerasType(extractor.type())) return FrozenBatchNorms::kAll;
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  const bool has_slim_scope = !type.has_value() || type->base == BaseHyperparams::kAny;
  return has_slim_scope && !extractor.override_base_feature_extractor_hyperparams()
             ? FrozenBatchNorms::kBackbone
             : FrozenBatchNorms::kNone;
}

}  // namespace pushpull
