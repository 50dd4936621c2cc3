// The values of model.ssd.feature_extractor.type. What each of them builds is in
// common/model/ssd/feature_extractors.cc, which has a row for each row here.
#ifndef PUSHPULL_COMMON_CONFIG_SSD_TYPES_H_
#define PUSHPULL_COMMON_CONFIG_SSD_TYPES_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// The feature maps that follow from the backbone's.
enum class FeatureMaps {
  kExtraLayers,     // convolutions with stride 2 (Liu et al., ECCV 2016)
  kFeaturePyramid,  // top-down sums (Lin et al., CVPR 2017); the config has `fpn`
  kPoolingPyramid,  // max pools of one map (Jin et al., 2018)
};

struct SsdType {
  absl::string_view name;
  FeatureMaps maps;
  int num_layers;  // feature maps; 0: as many as the config says
  // The backbone has hyperparams of its own, which the config cannot override.
  bool own_hyperparams = false;
};

// Returns the type of this name. A name may end in "_keras", which changes nothing.
std::optional<SsdType> FindSsdType(absl::string_view name);

// All names, without those that end in "_keras".
std::vector<absl::string_view> SsdTypeNames();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_SSD_TYPES_H_
