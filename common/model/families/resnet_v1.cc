#include "common/model/families/resnet_v1.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/config/model_types.h"
#include "common/model/families/depths.h"
#include "common/model/families/family.h"

namespace pushpull {
namespace {

constexpr int kFirstDepth = 64;
constexpr int kExpansion = 4;  // of the last convolution of a unit
// From slim's training scope.
constexpr float kL2Weight = 1e-4f;
constexpr float kEpsilon = 1e-5f;

// `type` is "resnet_v1_50", "ssd_resnet101_v1_fpn", ...
int LayersOf(absl::string_view type) {
  if (absl::StrContains(type, "101")) return 101;
  return absl::StrContains(type, "152") ? 152 : 50;
}

// The units of the four blocks: table 1 of the paper.
std::array<int, 4> UnitsOf(int layers) {
  if (layers == 101) return {3, 4, 23, 3};
  if (layers == 152) return {3, 8, 36, 3};
  CHECK_EQ(layers, 50);
  return {3, 4, 6, 3};
}

// The strides of a unit's first two convolutions. That of its shortcut is their product.
struct UnitStrides {
  int first = 1;
  int middle = 1;
};

UnitStrides FirstUnitStrides(ResnetStrides strides) {
  switch (strides) {
    case ResnetStrides::kMiddle:
      return {1, 2};
    case ResnetStrides::kFirst:
      return {2, 1};
    case ResnetStrides::kAfterBlocks:
      break;
  }
  return {};
}

// A bottleneck unit.
struct Unit {
  int depth = 0;  // of the first two convolutions
  ActivationFunction sum_activation = ActivationFunction::kRelu;
  UnitStrides strides{};
};

// Adds three convolutions and their sum with the input, or with a 1x1 convolution of the input if
// the shapes differ.
int AddUnit(const std::string& scope, int input, const Unit& unit,
            const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const auto& [depth, sum_activation, strides] = unit;
  const ActivationFunction activation = hyperparams.activation;
  int last = builder->AddNormalized({scope + "/conv1", input, 1, strides.first, depth, activation},
                                    hyperparams);
  LayerRequest middle{scope + "/conv2", last, 3, strides.middle, depth, activation};
  middle.fixed_padding = true;
  last = builder->AddNormalized(middle, hyperparams);
  last = builder->AddNormalized({scope + "/conv3", last, 1, 1, depth * kExpansion}, hyperparams);
  int shortcut = input;
  if (!(builder->shape(input) == builder->shape(last))) {
    shortcut = builder->AddNormalized(
        {scope + "/shortcut", input, 1, strides.first * strides.middle, depth * kExpansion},
        hyperparams);
  }
  last = builder->AddNode(scope + "/add", op::Add(), {last, shortcut});
  if (sum_activation == ActivationFunction::kNone) return last;
  return builder->AddNode(absl::StrCat(scope, "/", ActivationName(sum_activation)),
                          op::Activation{sum_activation}, {last});
}

int AddClassifierBody(const config::Classifier& classifier, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  const config::ClassifierFeatureExtractor& extractor = classifier.feature_extractor();
  const ResnetV1Options options{LayersOf(extractor.type()), extractor.depth_multiplier(),
                                extractor.min_depth()};
  LayerHyperparams relu = hyperparams;
  relu.activation = ActivationFunction::kRelu;
  return AddResnetV1Body(extractor.type(), options, relu, builder).blocks.back();
}

}  // namespace

ResnetV1Endpoints AddResnetV1Body(const std::string& scope, const ResnetV1Options& options,
                                  const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const auto depth = [&options](int full) {
    return ScaleDepth(full, options.multiplier, options.min_depth);
  };
  // slim's multiplier does not reach the first convolution.
  const int first_depth =
      options.strides == ResnetStrides::kAfterBlocks ? kFirstDepth : depth(kFirstDepth);
  LayerRequest first{scope + "/conv1", Node::kImage, 7, 2, first_depth, hyperparams.activation};
  first.fixed_padding = true;
  int last = builder->AddNormalized(first, hyperparams);
  const Window pool = options.strides == ResnetStrides::kMiddle
                          ? FixedWindow(3, 2)
                          : SameWindow(builder->shape(last), 3, 2);
  last = builder->AddNode(scope + "/pool1", op::MaxPool{pool}, {last});
  const std::array<int, 4> units = UnitsOf(options.layers);
  ResnetV1Endpoints endpoints;
  for (int block = 0; block < 4; ++block) {
    const std::string block_scope = absl::StrCat(scope, "/block", block + 1);
    for (int i = 0; i < units[block]; ++i) {
      Unit unit{depth(kFirstDepth << block), options.sum_activation};
      if (block > 0 && i == 0) unit.strides = FirstUnitStrides(options.strides);
      last = AddUnit(absl::StrCat(block_scope, "/unit_", i + 1, "/bottleneck_v1"), last, unit,
                     hyperparams, builder);
    }
    endpoints.blocks[block] = last;
    if (options.strides == ResnetStrides::kAfterBlocks && block < 3) {
      last = builder->AddNode(block_scope + "/subsample", op::MaxPool{Window{1, 2, {}}}, {last});
    }
  }
  return endpoints;
}

ClassifierFamily ResnetV1Classifier(absl::string_view type) {
  return {std::string(type), AddClassifierBody, nullptr, "hidden", "logits"};
}

LayerHyperparams ResnetScope(bool keras) {
  LayerHyperparams hyperparams;
  if (keras) {
    hyperparams.initializer = ScaledNormalInitializer(1.0);
  } else {
    hyperparams.initializer.mutable_variance_scaling_initializer();  // slim's, with a factor of 2
  }
  // Keras's L2 loss is the sum of the squares, slim's half of it.
  hyperparams.l2_weight = keras ? 2 * kL2Weight : kL2Weight;
  hyperparams.activation = ActivationFunction::kRelu;
  hyperparams.batch_norm->epsilon = kEpsilon;
  return hyperparams;
}

SsdBackbone AddResnetV1(const config::SsdFeatureExtractor& extractor,
                        const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const int layers = LayersOf(extractor.type());
  ResnetV1Options options{layers, extractor.depth_multiplier(), extractor.min_depth()};
  options.strides = ResnetStrides::kAfterBlocks;
  if (IsKerasType(extractor.type())) {
    options.strides = ResnetStrides::kFirst;
    options.sum_activation = hyperparams.activation;  // slim's sums have ReLU in any case
  }
  SsdBackbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/resnet_v1_", layers);
  backbone.levels = AddResnetV1Body(backbone.scope, options, hyperparams, builder).blocks;
  backbone.coarse_scope = "bottom_up_block";
  backbone.first_coarse = 5;
  return backbone;
}

}  // namespace pushpull
