// The convolutions of MobileNetV2 (Sandler et al., CVPR 2018), as TensorFlow slim builds them.
#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/config/model_types.h"
#include "common/model/families/depths.h"
#include "common/model/families/family.h"
#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

constexpr int kChannelDivisor = 8;
constexpr int kExpansion = 6;
constexpr int kFirstDepth = 32;

struct BlockRow {
  int depth;
  int stride;
};

// Table 2 of the paper with repeated blocks written out. The first block has no expansion.
constexpr BlockRow kBlocks[] = {{16, 1}, {24, 2},  {24, 1},  {32, 2},  {32, 1}, {32, 1},
                                {64, 2}, {64, 1},  {64, 1},  {64, 1},  {96, 1}, {96, 1},
                                {96, 1}, {160, 2}, {160, 1}, {160, 1}, {320, 1}};
// The expansion of this block is the last layer at stride 16.
constexpr int kLastBlockAtStride16 = 13;
// The channels of the last convolution before FPN-Lite in TensorFlow 1. TensorFlow 2 means to have
// them too, but builds all 1,280, and so its checkpoints have them.
constexpr int kFpnLiteDepth = 256;

constexpr char kClassifierScope[] = "MobilenetV2";

// How the multiplier changes the channels of the last 1x1 convolution.
enum class LastDepthScaling {
  kBoth,      // any multiplier scales them, as in all layers: TensorFlow 1's detectors
  kOnlyUp,    // only a multiplier above 1 scales them: slim's classifier
  kOnlyDown,  // only a multiplier below 1 scales them: TensorFlow 2's detectors
};

struct MobilenetV2Widths {
  double multiplier = 1.0;
  int min_depth = 8;
  LastDepthScaling last_depth_scaling = LastDepthScaling::kBoth;
  // Before the multiplier. 0: there is no last 1x1 convolution.
  int last_depth = 1280;
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes.
struct MobilenetV2Endpoints {
  int layer_4 = 0;             // stride 4: expanded_conv_2
  int layer_7 = 0;             // stride 8: expanded_conv_5
  int layer_14 = 0;            // stride 16: expanded_conv_12
  int layer_15_expansion = 0;  // stride 16: the expansion of expanded_conv_13
  int layer_19 = 0;            // stride 32: the last convolution, or without one expanded_conv_16
};

double LastMultiplier(const MobilenetV2Widths& widths) {
  switch (widths.last_depth_scaling) {
    case LastDepthScaling::kOnlyUp:
      return std::max(widths.multiplier, 1.0);
    case LastDepthScaling::kOnlyDown:
      return std::min(widths.multiplier, 1.0);
    case LastDepthScaling::kBoth:
      break;
  }
  return widths.multiplier;
}

// Adds a convolution, 17 inverted residual blocks and the last 1x1 convolution under `scope`. The
// first layer reads the image. CHECKs that `hyperparams` has a batch norm.
MobilenetV2Endpoints AddMobilenetV2Body(const std::string& scope, const MobilenetV2Widths& widths,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder) {
  const auto depth = [&widths](int full) {
    return MakeDivisible(full * widths.multiplier, kChannelDivisor, widths.min_depth);
  };
  const ActivationFunction activation = hyperparams.activation;
  MobilenetV2Endpoints endpoints;
  int last = builder->AddNormalized(
      {scope + "/Conv", Node::kImage, 3, 2, depth(kFirstDepth), activation}, hyperparams);
  for (int i = 0; i < static_cast<int>(std::size(kBlocks)); ++i) {
    const std::string block =
        absl::StrCat(scope, "/expanded_conv", i == 0 ? "" : absl::StrCat("_", i));
    const int block_input = last;
    const int input_depth = builder->shape(block_input).channels;
    const int block_depth = depth(kBlocks[i].depth);
    if (i > 0) {
      const int inner =
          MakeDivisible(double{kExpansion} * input_depth, kChannelDivisor, kChannelDivisor);
      last =
          builder->AddNormalized({block + "/expand", last, 1, 1, inner, activation}, hyperparams);
      if (i == kLastBlockAtStride16) endpoints.layer_15_expansion = last;
    }
    last = builder->AddNormalizedDepthwise(
        {block + "/depthwise", last, 3, kBlocks[i].stride, 0, activation}, hyperparams);
    last = builder->AddNormalized({block + "/project", last, 1, 1, block_depth}, hyperparams);
    if (kBlocks[i].stride == 1 && block_depth == input_depth) {
      last = builder->AddNode(block + "/project/add", op::Add(), {last, block_input});
    }
    if (i == 2) endpoints.layer_4 = last;
    if (i == 5) endpoints.layer_7 = last;
    if (i == 12) endpoints.layer_14 = last;
  }
  endpoints.layer_19 = last;
  if (widths.last_depth == 0) return endpoints;
  const int last_depth =
      MakeDivisible(widths.last_depth * LastMultiplier(widths), kChannelDivisor, widths.min_depth);
  endpoints.layer_19 =
      builder->AddNormalized({scope + "/Conv_1", last, 1, 1, last_depth, activation}, hyperparams);
  return endpoints;
}

int AddClassifierBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  MobilenetV2Widths widths;
  widths.multiplier = classifier.feature_extractor().depth_multiplier();
  widths.min_depth = classifier.feature_extractor().min_depth();
  widths.last_depth_scaling = LastDepthScaling::kOnlyUp;
  return AddMobilenetV2Body(kClassifierScope, widths, hyperparams, builder).layer_19;
}

// slim's definition of the network comes after the config's hyperparameters and keeps these.
// Keras's network has all of the config's.
LayerHyperparams WithSlimsDefinition(const LayerHyperparams& hyperparams) {
  LayerHyperparams result = WithGammaAndBeta(hyperparams);
  result.activation = Relu6UnlessSwish(hyperparams.activation);
  return result;
}

}  // namespace

ClassifierFamily MobilenetV2Classifier(absl::string_view) {
  return {kClassifierScope, AddClassifierBody};
}

SsdBackbone AddMobilenetV2(const config::SsdFeatureExtractor& extractor,
                           const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  MobilenetV2Widths widths{extractor.depth_multiplier(), extractor.min_depth()};
  const bool keras = IsKerasType(extractor.type());
  const FeatureMaps maps = FindSsdType(extractor.type())->maps;
  if (keras) widths.last_depth_scaling = LastDepthScaling::kOnlyDown;
  if (maps == FeatureMaps::kMnasFpn) widths.last_depth = 0;
  if (maps == FeatureMaps::kFeaturePyramid && extractor.use_depthwise() && !keras) {
    widths.last_depth = kFpnLiteDepth;
  }
  SsdBackbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV2";
  const MobilenetV2Endpoints ends = AddMobilenetV2Body(
      backbone.scope, widths, keras ? hyperparams : WithSlimsDefinition(hyperparams), builder);
  backbone.maps = {ends.layer_15_expansion, ends.layer_19};
  backbone.extra_scope = backbone.scope + "/layer_19";
  backbone.levels = {ends.layer_4, ends.layer_7, ends.layer_14, ends.layer_19};
  backbone.coarse_scope = "bottom_up_Conv2d_";
  backbone.first_coarse = 20;
  return backbone;
}

}  // namespace pushpull
