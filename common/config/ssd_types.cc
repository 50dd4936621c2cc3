// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
#include "common/config/ssd_types.h"

#include "absl/strings/strip.h"

namespace pushpull {
namespace {

constexpr SsdType kTypes[] = {
    {"ssd_mobilenet_v1", FeatureMaps::kExtraLayers, 0},
    {"ssd_mobilenet_v2", FeatureMaps::kExtraLayers, 0},
    {"ssd_mobilenet_v3_large", FeatureMaps::kExtraLayers, 0},
    {"ssd_mobilenet_v3_small", FeatureMaps::kExtraLayers, 0},
    {"ssd_mobilenet_edgetpu", FeatureMaps::kExtraLayers, 0},
    {"ssd_mobiledet_cpu", FeatureMaps::kExtraLayers, 0, /*own_hyperparams=*/true},
    {"ssd_mobiledet_dsp", FeatureMaps::kExtraLayers, 0, /*own_hyperparams=*/true},
    {"ssd_mobiledet_edgetpu", FeatureMaps::kExtraLayers, 0, /*own_hyperparams=*/true},
    {"ssd_mobiledet_gpu", FeatureMaps::kExtraLayers, 0, /*own_hyperparams=*/true},
    {"ssd_mobilenet_v1_fpn", FeatureMaps::kFeaturePyramid, 0},
    {"ssd_mobilenet_v2_fpn", FeatureMaps::kFeaturePyramid, 0},
    {"ssd_resnet50_v1_fpn", FeatureMaps::kFeaturePyramid, 0},
    {"ssd_resnet101_v1_fpn", FeatureMaps::kFeaturePyramid, 0},
    {"ssd_resnet152_v1_fpn", FeatureMaps::kFeaturePyramid, 0},
    {"ssd_mobilenet_v1_ppn", FeatureMaps::kPoolingPyramid, 6},
    {"embedded_ssd_mobilenet_v1", FeatureMaps::kExtraLayers, 5},
};

}  // namespace

std::optional<SsdType> FindSsdType(absl::string_view name) {
  const absl::string_view plain = absl::StripSuffix(name, "_keras");
  for (const SsdType& type : kTypes) {
    if (type.name == plain) return type;
  }
  return std::nullopt;
}

std::vector<absl::string_view> SsdTypeNames() {
  std::vector<absl::string_view> names;
  for (const SsdType& type : kTypes) names.push_back(type.name);
  return names;
}

}  // namespace pushpull
