// The networks that a config can name, with a row for each. A new network is its file in
// common/model/families and its row here.
//
// Both tables are macros that take another macro, ROW, and expand it once for each network. Here
// they become what the config checks need to know; common/model declares and calls the functions
// that the rows name (families/family.h).
#ifndef PUSHPULL_COMMON_CONFIG_MODEL_TYPES_H_
#define PUSHPULL_COMMON_CONFIG_MODEL_TYPES_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// The values of model.classifier.feature_extractor.type:
//   ROW(type, own_activations, batch_norm, head, family)
//     own_activations  conv_hyperparams cannot choose the activation
//     batch_norm       an enumerator of BatchNormUse: whether conv_hyperparams needs it
//     head             an enumerator of ClassifierHead: how the last map is read
//     family           a function: what comes before and after the head
// clang-format off
#define PUSHPULL_CLASSIFIER_TYPES(ROW)                                                 \
  ROW("mobilenet_v2",       false, kRequired, kGlobalPool, MobilenetV2Classifier)      \
  ROW("mobilenet_v3_large", true,  kRequired, kGlobalPool, MobilenetV3Classifier)      \
  ROW("mobilenet_v3_small", true,  kRequired, kGlobalPool, MobilenetV3Classifier)      \
  ROW("mobilenet_edgetpu",  true,  kRequired, kGlobalPool, MobilenetEdgetpuClassifier) \
  ROW("resnet_v1_50",       true,  kRequired, kGlobalPool, ResnetV1Classifier)         \
  ROW("resnet_v1_101",      true,  kRequired, kGlobalPool, ResnetV1Classifier)         \
  ROW("resnet_v1_152",      true,  kRequired, kGlobalPool, ResnetV1Classifier)         \
  ROW("inception_v2",       false, kRequired, kGlobalPool, InceptionV2Classifier)      \
  ROW("vgg_a",              false, kOptional, kDense,      VggClassifier)              \
  ROW("vgg_16",             false, kOptional, kDense,      VggClassifier)              \
  ROW("vgg_19",             false, kOptional, kDense,      VggClassifier)
// clang-format on

// The values of model.ssd.feature_extractor.type, without "_keras" at their end:
//   ROW(type, maps, num_layers, base, scope, backbone)
//     maps        an enumerator of FeatureMaps: what follows from the backbone
//     num_layers  the number of feature maps; 0: as many as the config says
//     base        an enumerator of BaseHyperparams: whose hyperparameters the backbone has
//     scope       a function of IsKerasType: the backbone's hyperparameters, unless the config
//                 overrides them
//     backbone    a function that adds the backbone
// clang-format off
#define PUSHPULL_SSD_TYPES(ROW)                                                                    \
  ROW("ssd_mobilenet_v1",          kExtraLayers,    0, kAny,   MobilenetV1Scope, AddMobilenetV1)   \
  ROW("ssd_mobilenet_v2",          kExtraLayers,    0, kAny,   MobilenetScope,   AddMobilenetV2)   \
  ROW("ssd_mobilenet_v3_large",    kExtraLayers,    0, kAny,   MobilenetScope,   AddMobilenetV3)   \
  ROW("ssd_mobilenet_v3_small",    kExtraLayers,    0, kAny,   MobilenetScope,   AddMobilenetV3)   \
  ROW("ssd_mobilenet_edgetpu",     kExtraLayers,    0, kAny,   MobilenetScope,                     \
      AddMobilenetEdgetpu)                                                                         \
  ROW("ssd_mobiledet_cpu",         kExtraLayers,    0, kOwn,   MobiledetScope,   AddMobiledet)     \
  ROW("ssd_mobiledet_dsp",         kExtraLayers,    0, kOwn,   MobiledetScope,   AddMobiledet)     \
  ROW("ssd_mobiledet_edgetpu",     kExtraLayers,    0, kOwn,   MobiledetScope,   AddMobiledet)     \
  ROW("ssd_mobiledet_gpu",         kExtraLayers,    0, kOwn,   MobiledetScope,   AddMobiledet)     \
  ROW("ssd_mobilenet_v1_fpn",      kFeaturePyramid, 0, kAny,   MobilenetV1Scope, AddMobilenetV1)   \
  ROW("ssd_mobilenet_v2_fpn",      kFeaturePyramid, 0, kAny,   MobilenetScope,   AddMobilenetV2)   \
  ROW("ssd_resnet50_v1_fpn",       kFeaturePyramid, 0, kAny,   ResnetScope,      AddResnetV1)      \
  ROW("ssd_resnet101_v1_fpn",      kFeaturePyramid, 0, kAny,   ResnetScope,      AddResnetV1)      \
  ROW("ssd_resnet152_v1_fpn",      kFeaturePyramid, 0, kAny,   ResnetScope,      AddResnetV1)      \
  ROW("ssd_mobilenet_v1_ppn",      kPoolingPyramid, 6, kAny,   MobilenetV1Scope, AddMobilenetV1)   \
  ROW("ssd_mobilenet_v2_mnasfpn",  kMnasFpn,        0, kFixed, MnasFpnScope,     AddMobilenetV2)   \
  ROW("embedded_ssd_mobilenet_v1", kExtraLayers,    5, kAny,   MobilenetScope,   AddMobilenetV1)   \
  ROW("ssd_inception_v2",          kExtraLayers,    0, kUser,  InceptionScope,   AddInceptionV2)
// clang-format on

// Whether a conv_hyperparams must have batch_norm. Layers without it have biases.
enum class BatchNormUse { kRequired, kOptional };

// How a classifier reads the last map of its convolutions.
enum class ClassifierHead {
  kGlobalPool,  // the mean of each channel
  kDense,       // a dense layer that reads every element, so that images are square and not large
};

struct ClassifierType {
  absl::string_view name;
  // The network has the activations of its paper, which the config cannot override.
  bool own_activations = false;
  BatchNormUse batch_norm = BatchNormUse::kRequired;
  ClassifierHead head = ClassifierHead::kGlobalPool;
};

// The feature maps that follow from the backbone's.
enum class FeatureMaps {
  kExtraLayers,     // convolutions with stride 2 (Liu et al., ECCV 2016)
  kFeaturePyramid,  // top-down sums (Lin et al., CVPR 2017); the config has `fpn`
  kPoolingPyramid,  // max pools of one map (Jin et al., 2018)
  kMnasFpn,         // the cells that a search found (Chen et al., CVPR 2020); the config has `fpn`
};

// Says which hyperparameters the layers of the backbone have.
enum class BaseHyperparams {
  kAny,    // their own, or conv_hyperparams with override_base_feature_extractor_hyperparams
  kOwn,    // always their own: the override is refused
  kFixed,  // always their own, as all layers before the predictor: conv_hyperparams has no effect
  kUser,   // always conv_hyperparams: a config without the override is refused
};

struct SsdType {
  absl::string_view name;
  FeatureMaps maps;
  int num_layers;  // feature maps; 0: as many as the config says
  BaseHyperparams base = BaseHyperparams::kAny;
};

// Whether the maps are those of the levels in `fpn`: level n has a stride of 2^n pixels.
constexpr bool HasLevels(FeatureMaps maps) {
  return maps == FeatureMaps::kFeaturePyramid || maps == FeatureMaps::kMnasFpn;
}

std::optional<ClassifierType> FindClassifierType(absl::string_view name);

// Returns the type of this name, which may end in "_keras" if TensorFlow 2 has this type.
std::optional<SsdType> FindSsdType(absl::string_view name);

// Returns whether the name of a detector's type ends in "_keras". Such a network is that of
// TensorFlow 2, which differs from that of TensorFlow 1:
//
//   - ResNet: strides are in the first convolution of a block, not after the block before it; the
//     sums have the activation of the convolutions, not always ReLU; its own L2 weight is doubled;
//     its own initializer has another deviation; depth_multiplier scales the first convolution too.
//   - MobileNetV2: only a multiplier below 1 scales the last convolution, also in FPN-Lite; the
//     backbone may take all its hyperparameters from the config (TensorFlow 1 keeps gamma, beta
//     and ReLU6); its own L2 loss covers the depthwise convolutions.
//   - Feature pyramids: each level adds the coarser level's smoothed map, not its sum.
//   - All: freeze_batchnorm freezes the whole network (frozen_batch_norms.h).
bool IsKerasType(absl::string_view name);

// All names, those of detectors without "_keras" at their end.
std::vector<absl::string_view> ClassifierTypeNames();
std::vector<absl::string_view> SsdTypeNames();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_MODEL_TYPES_H_
