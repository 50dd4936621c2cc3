// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/config/extractor_checks.h"

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/config/layer_checks.h"
#include "common/config/model_types.h"

namespace pushpull {
namespace {

constexpr char kField[] = "model.ssd.feature_extractor";
constexpr int kMinMaps = 2;  // the maps of the backbone
constexpr int kMaxMaps = 6;  // with all extra layers
// The levels of a feature pyramid. The backbone has those up to 5, and all of them are read.
constexpr int kFirstPyramidLevel = 2;
constexpr int kLastBackboneLevel = 5;
constexpr int kLastPyramidLevel = 10;
// Each cell of MnasFPN reads these levels.
constexpr int kMnasFpnFirstLevel = 3;
constexpr int kMnasFpnLastLevel = 6;

// Both sides of the image must be multiples of `multiple`.
void CheckDivides(const config::Ssd& ssd, const std::string& field, int multiple,
                  const std::string& what, FieldChecker* checker) {
  for (const int side : InputSides(ssd.image_resizer())) {
    if (side % multiple == 0) continue;
    checker->Add(field, what, absl::StrCat("an image with a side of ", side, " pixels"),
                 absl::StrCat("make both sides of the image multiples of ", multiple));
    return;
  }
}

// True if each map from min_level to max_level is twice as large as the next one.
bool MapsDouble(int side, int min_level, int max_level) {
  const auto size = [side](int level) { return (int64_t{side} + (1 << level) - 1) >> level; };
  for (int level = min_level; level < max_level; ++level) {
    if (size(level) != 2 * size(level + 1)) return false;
  }
  return true;
}

// Whether the levels from min_level to max_level exist. CheckPyramid and CheckMnasFpn report those
// that do not.
bool AreLevels(int min_level, int max_level) {
  return min_level >= kFirstPyramidLevel && max_level <= kLastPyramidLevel &&
         min_level <= max_level;
}

// The maps of the levels from min_level to max_level are added to each other after doubling.
void CheckMapsDouble(const config::Ssd& ssd, const std::string& field, int min_level, int max_level,
                     FieldChecker* checker) {
  if (!AreLevels(min_level, max_level)) return;
  for (const int side : InputSides(ssd.image_resizer())) {
    if (MapsDouble(side, min_level, max_level)) continue;
    checker->Add(field, "an image whose maps are exactly twice as large as those of the next level",
                 absl::StrCat("a side of ", side, " pixels"),
                 absl::StrCat("make both sides of the image multiples of ", 1 << max_level));
    return;
  }
}

void CheckMnasFpn(const config::Ssd& ssd, const std::string& field, FieldChecker* checker) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const config::FeaturePyramidNetworks& fpn = extractor.fpn();
  if (fpn.min_level() != kMnasFpnFirstLevel || fpn.max_level() != kMnasFpnLastLevel) {
    checker->Add(
        field + ".fpn.min_level, max_level",
        absl::StrCat(kMnasFpnFirstLevel, ", ", kMnasFpnLastLevel, ", the levels of the cells"),
        absl::StrCat(fpn.min_level(), ", ", fpn.max_level()));
  }
  checker->Between(field + ".fpn.additional_layer_depth", fpn.additional_layer_depth(), 1,
                   kMaxDepth);
  CheckMapsDouble(ssd, field + ".fpn", kMnasFpnFirstLevel, kMnasFpnLastLevel, checker);
}

// TensorFlow has explicit padding with the MobileNets and Inception only.
bool HasExplicitPadding(const SsdType& type) {
  return type.maps != FeatureMaps::kMnasFpn && !absl::StartsWith(type.name, "ssd_mobiledet") &&
         !absl::StartsWith(type.name, "ssd_resnet");
}

// Returns why no layer reads conv_hyperparams; empty if some do. TensorFlow does not read them
// either, and its sample configs set them.
std::string WhyUnread(const config::SsdFeatureExtractor& extractor, const SsdType& type) {
  if (type.base == BaseHyperparams::kFixed) return "its layers have hyperparameters of their own";
  if (type.maps == FeatureMaps::kPoolingPyramid &&
      !extractor.override_base_feature_extractor_hyperparams()) {
    return "its backbone has hyperparameters of its own and its maps are max pools; set "
           "override_base_feature_extractor_hyperparams: true to use them in the backbone";
  }
  return "";
}

void CheckPyramid(const config::Ssd& ssd, const std::string& field, FieldChecker* checker) {
  const config::FeaturePyramidNetworks& fpn = ssd.feature_extractor().fpn();
  checker->Between(field + ".min_level", fpn.min_level(), kFirstPyramidLevel, kLastBackboneLevel);
  if (fpn.max_level() >= kFirstPyramidLevel && fpn.max_level() < kLastBackboneLevel) {
    checker->Add(field + ".max_level",
                 absl::StrCat(kLastBackboneLevel, " to ", kLastPyramidLevel,
                              ", because all levels of the backbone are read; in TensorFlow the "
                              "backbone's layers after a lower level have no effect"),
                 absl::StrCat(fpn.max_level()),
                 absl::StrCat("set it, and max_level of multiscale_anchor_generator, to ",
                              kLastBackboneLevel));
  } else {
    checker->Between(field + ".max_level", fpn.max_level(), kLastBackboneLevel, kLastPyramidLevel);
  }
  checker->Between(field + ".additional_layer_depth", fpn.additional_layer_depth(), 1, kMaxDepth);
  CheckMapsDouble(ssd, field, fpn.min_level(), kLastBackboneLevel, checker);
}

// Refuses fields that say something about other feature maps than those of `type`.
void CheckFieldsOfOtherMaps(const config::Ssd& ssd, const SsdType& type, const std::string& field,
                            FieldChecker* checker) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const int maps = NumFeatureMaps(ssd);
  if (extractor.has_num_layers() && maps != 0 && extractor.num_layers() != maps) {
    checker->Add(field + ".num_layers",
                 absl::StrCat("the number of feature maps that \"", extractor.type(),
                              "\" has here (", maps, ")"),
                 absl::StrCat(extractor.num_layers()), "remove it");
  }
  if (!extractor.use_depthwise()) return;
  if (type.maps == FeatureMaps::kPoolingPyramid) {
    checker->Add(field + ".use_depthwise", "false, because the maps are max pools", "true",
                 "remove it");
  } else if (type.maps == FeatureMaps::kMnasFpn) {
    checker->Add(field + ".use_depthwise", "false, because the cells are separable in any case",
                 "true", "remove it");
  }
}

// Every backbone has batch norms, and so have depthwise extra layers: a depthwise convolution has
// no biases. Those of a feature pyramid are followed by a convolution with biases.
BatchNormUse BatchNormOf(const config::SsdFeatureExtractor& extractor, const SsdType& type) {
  const bool depthwise = type.maps == FeatureMaps::kExtraLayers && extractor.use_depthwise();
  const bool follows =
      type.maps == FeatureMaps::kExtraLayers || type.maps == FeatureMaps::kFeaturePyramid;
  return follows && !depthwise && !extractor.override_base_feature_extractor_hyperparams()
             ? BatchNormUse::kOptional
             : BatchNormUse::kRequired;
}

// Hyperparameters that no layer reads may lack a batch norm or be absent. Numbers out of range are
// mistakes in any case.
void CheckConvHyperparams(const config::SsdFeatureExtractor& extractor,
                          const std::optional<SsdType>& type, const std::string& field,
                          FieldChecker* checker, std::vector<std::string>* warnings) {
  const std::string name = field + ".conv_hyperparams";
  const std::string unread = type.has_value() ? WhyUnread(extractor, *type) : "";
  if (!unread.empty()) {
    const std::string reason =
        absl::StrCat(" has no effect with \"", extractor.type(), "\": ", unread);
    if (extractor.has_conv_hyperparams()) warnings->push_back(name + reason);
    if (extractor.override_base_feature_extractor_hyperparams()) {
      warnings->push_back(
          absl::StrCat(field, ".override_base_feature_extractor_hyperparams", reason));
    }
    CheckHyperparams(extractor.conv_hyperparams(), name, BatchNormUse::kOptional, checker);
    return;
  }
  const BatchNormUse batch_norm =
      type.has_value() ? BatchNormOf(extractor, *type) : BatchNormUse::kRequired;
  CheckHyperparams(extractor.conv_hyperparams(), name, batch_norm, checker);
  if (batch_norm == BatchNormUse::kOptional) {
    CheckInitializerWithoutBatchNorm(extractor.conv_hyperparams(), name, checker);
  }
}

}  // namespace

int NumFeatureMaps(const config::Ssd& ssd) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  if (type.has_value() && HasLevels(type->maps)) {
    const config::FeaturePyramidNetworks& fpn = extractor.fpn();
    return AreLevels(fpn.min_level(), fpn.max_level()) ? fpn.max_level() - fpn.min_level() + 1 : 0;
  }
  return type.has_value() && type->num_layers > 0 ? type->num_layers : extractor.num_layers();
}

void CheckExtractor(const config::Ssd& ssd, FieldChecker* checker,
                    std::vector<std::string>* warnings) {
  const config::SsdFeatureExtractor& extractor = ssd.feature_extractor();
  const std::string field = kField;
  const std::optional<SsdType> type = FindSsdType(extractor.type());
  if (!type.has_value()) AddUnknownType(field + ".type", extractor.type(), SsdTypeNames(), checker);
  if (type.has_value() && type->maps == FeatureMaps::kFeaturePyramid) {
    CheckPyramid(ssd, field + ".fpn", checker);
  } else if (type.has_value() && type->maps == FeatureMaps::kMnasFpn) {
    CheckMnasFpn(ssd, field, checker);
  } else if (extractor.has_fpn()) {
    checker->Add(field + ".fpn", "none for this type", "one", "remove it");
  }
  const std::string override = field + ".override_base_feature_extractor_hyperparams";
  if (type.has_value() && type->base == BaseHyperparams::kOwn &&
      extractor.override_base_feature_extractor_hyperparams()) {
    checker->Add(override, "false, because this backbone has hyperparameters of its own", "true",
                 "remove it");
  }
  if (type.has_value() && type->base == BaseHyperparams::kUser &&
      !extractor.override_base_feature_extractor_hyperparams()) {
    checker->Add(override, "true, because this backbone has no hyperparameters of its own", "false",
                 "set it to true: conv_hyperparams are those of all layers");
  }
  if (type.has_value() && extractor.use_explicit_padding() && !HasExplicitPadding(*type)) {
    checker->Add(field + ".use_explicit_padding", "false for this type", "true", "remove it");
  }
  checker->Positive(field + ".depth_multiplier", extractor.depth_multiplier(), kMaxDepthMultiplier);
  checker->Between(field + ".min_depth", extractor.min_depth(), 1, kMaxDepth);
  checker->Between(field + ".num_layers", extractor.num_layers(), kMinMaps, kMaxMaps);
  if (type.has_value()) CheckFieldsOfOtherMaps(ssd, *type, field, checker);
  checker->Between(field + ".pad_to_multiple", extractor.pad_to_multiple(), 1, kMaxSide);
  if (extractor.pad_to_multiple() > 1) {
    CheckDivides(ssd, field + ".pad_to_multiple", extractor.pad_to_multiple(),
                 "a divisor of the image's sides, because images are not padded", checker);
  }
  CheckConvHyperparams(extractor, type, field, checker, warnings);
}

}  // namespace pushpull
