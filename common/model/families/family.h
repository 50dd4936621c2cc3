// What a family of networks gives to a classifier and to an SSD detector, and the functions that
// give it: those that the rows of common/config/model_types.h name. The family's file defines
// them, except that family.cc has what several families share and ssd/mnas_fpn.cc MnasFpnScope.
// Thread-safe functions.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_FAMILY_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_FAMILY_H_

#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/config/model_types.h"
#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// What a family adds to a classifier.
struct ClassifierFamily {
  std::string name;  // of the network, and the scope of its variables
  // Adds everything before the head (ClassifierHead) and returns the last node.
  int (*add_body)(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                  NetworkBuilder* builder);
  // Adds what lies between `input`, which is the global pool or, without one, the last map, and the
  // dense layers of all families. Returns the last node, [1, 1, channels]. nullptr: nothing.
  int (*add_top)(const config::Classifier& classifier, int input,
                 const LayerHyperparams& hyperparams, NetworkBuilder* builder) = nullptr;
  // Scopes of the dense layers, within that of the network.
  std::string hidden = "Logits/Conv2d_1b_1x1";
  std::string logits = "Logits/Conv2d_1c_1x1";
  // The hyperparameters of all layers if the config has no conv_hyperparams.
  LayerHyperparams (*scope)() = SlimHyperparams;
};

// A layer of stride 2 after the backbone of a plain SSD.
struct ExtraLayer {
  int depth;  // before depth_multiplier
  int kernel = 3;
};

// What a backbone gives to the layers that follow. Nodes are those of its last values at a stride.
struct SsdBackbone {
  std::string scope;
  // For a plain SSD: the first maps, the prefix of the extra layers' scopes, and these layers.
  std::vector<int> maps;
  std::string extra_scope;
  std::vector<ExtraLayer> extras = {{512}, {256}, {256}, {128}};
  // For a feature pyramid: the nodes at strides 4, 8, 16 and 32, the prefix of the scopes of the
  // layers above level 5, and the number of the first of these layers.
  std::array<int, 4> levels{};
  std::string coarse_scope;
  int first_coarse = 0;
};

// slim's scopes of some networks keep gamma and beta whatever the config says.
LayerHyperparams WithGammaAndBeta(LayerHyperparams hyperparams);

#define PUSHPULL_ROW(type, own_activations, batch_norm, head, family) \
  ClassifierFamily family(absl::string_view feature_extractor_type);
PUSHPULL_CLASSIFIER_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW

#define PUSHPULL_ROW(type, maps, num_layers, base, scope, backbone)  \
  LayerHyperparams scope(bool keras);                                \
  SsdBackbone backbone(const config::SsdFeatureExtractor& extractor, \
                       const LayerHyperparams& hyperparams, NetworkBuilder* builder);
PUSHPULL_SSD_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_FAMILY_H_
