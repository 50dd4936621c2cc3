// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/model_types.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace pushpull {
namespace {

constexpr ClassifierType kClassifiers[] = {
#define PUSHPULL_ROW(type, own_activations, batch_norm, head, family) \
  {type, own_activations, BatchNormUse::batch_norm, ClassifierHead::head},
    PUSHPULL_CLASSIFIER_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW
};

constexpr SsdType kDetectors[] = {
#define PUSHPULL_ROW(type, maps, num_layers, base, scope, backbone) \
  {type, FeatureMaps::maps, num_layers, BaseHyperparams::base},
    PUSHPULL_SSD_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW
};

constexpr absl::string_view kKerasSuffix = "_keras";
// The types that TensorFlow 2 has too, with the suffix.
constexpr absl::string_view kKerasTypes[] = {
    "ssd_mobilenet_v1",    "ssd_mobilenet_v2",     "ssd_mobilenet_v1_fpn", "ssd_mobilenet_v2_fpn",
    "ssd_resnet50_v1_fpn", "ssd_resnet101_v1_fpn", "ssd_resnet152_v1_fpn"};

template <typename Type>
std::optional<Type> Find(absl::Span<const Type> types, absl::string_view name) {
  for (const Type& type : types) {
    if (type.name == name) return type;
  }
  return std::nullopt;
}

template <typename Type>
std::vector<absl::string_view> Names(absl::Span<const Type> types) {
  std::vector<absl::string_view> names;
  for (const Type& type : types) names.push_back(type.name);
  return names;
}

}  // namespace

std::optional<ClassifierType> FindClassifierType(absl::string_view name) {
  return Find(absl::MakeConstSpan(kClassifiers), name);
}

std::optional<SsdType> FindSsdType(absl::string_view name) {
  const absl::string_view type = absl::StripSuffix(name, kKerasSuffix);
  if (IsKerasType(name) && !absl::c_linear_search(kKerasTypes, type)) return std::nullopt;
  return Find(absl::MakeConstSpan(kDetectors), type);
}

bool IsKerasType(absl::string_view name) { return absl::EndsWith(name, kKerasSuffix); }

std::vector<absl::string_view> ClassifierTypeNames() {
  return Names(absl::MakeConstSpan(kClassifiers));
}

std::vector<absl::string_view> SsdTypeNames() { return Names(absl::MakeConstSpan(kDetectors)); }

}  // namespace pushpull
