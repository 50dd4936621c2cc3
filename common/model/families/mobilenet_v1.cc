// The convolutions of MobileNetV1 (Howard et al., 2017), as TensorFlow slim builds them.
// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/config/model_types.h"
#include "common/model/families/depths.h"
#include "common/model/families/family.h"
#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

struct BlockRow {
  int depth;
  int stride;
};

// Table 1 of the paper: a convolution, then thirteen depthwise separable convolutions.
constexpr int kFirstDepth = 32;
constexpr BlockRow kBlocks[] = {{64, 1},  {128, 2},  {128, 1}, {256, 2}, {256, 1},
                                {512, 2}, {512, 1},  {512, 1}, {512, 1}, {512, 1},
                                {512, 1}, {1024, 2}, {1024, 1}};
constexpr int kFirstNarrowBlock = 12;
constexpr int kNarrowDepths[] = {512, 256};

// Nodes whose values an SSD reads, as indices into NetworkSpec::nodes.
struct MobilenetV1Endpoints {
  int conv2d_3_pointwise = 0;   // stride 4
  int conv2d_5_pointwise = 0;   // stride 8
  int conv2d_11_pointwise = 0;  // stride 16
  int conv2d_13_pointwise = 0;  // stride 32
};

struct MobilenetV1Options {
  double multiplier = 1.0;
  int min_depth = 8;
  // The last block that is added: 11, or 13 for all.
  int last_block = 13;
  // Blocks 12 and 13 have 512 and 256 channels instead of 1,024: TensorFlow's backbone of FPN-Lite.
  bool narrow_end = false;
};

// Adds the layers Conv2d_0 to Conv2d_13_pointwise under `scope`. The first layer reads the image.
// CHECKs that `hyperparams` has a batch norm.
MobilenetV1Endpoints AddMobilenetV1Body(const std::string& scope, const MobilenetV1Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder) {
  const auto depth = [&options](int full) {
    return ScaleDepth(full, options.multiplier, options.min_depth);
  };
  MobilenetV1Endpoints endpoints;
  int last = builder->AddNormalized(
      {scope + "/Conv2d_0", Node::kImage, 3, 2, depth(kFirstDepth), hyperparams.activation},
      hyperparams);
  for (int number = 1; number <= options.last_block; ++number) {
    BlockRow row = kBlocks[number - 1];
    if (options.narrow_end && number >= kFirstNarrowBlock) {
      row.depth = kNarrowDepths[number - kFirstNarrowBlock];
    }
    const std::string block = absl::StrCat(scope, "/Conv2d_", number);
    last = builder->AddNormalizedDepthwise(
        {block + "_depthwise", last, 3, row.stride, 0, hyperparams.activation}, hyperparams);
    last = builder->AddNormalized(
        {block + "_pointwise", last, 1, 1, depth(row.depth), hyperparams.activation}, hyperparams);
    if (number == 3) endpoints.conv2d_3_pointwise = last;
    if (number == 5) endpoints.conv2d_5_pointwise = last;
    if (number == 11) endpoints.conv2d_11_pointwise = last;
  }
  endpoints.conv2d_13_pointwise = last;
  return endpoints;
}

}  // namespace

LayerHyperparams MobilenetV1Scope(bool keras) {
  LayerHyperparams hyperparams = MobilenetScope(keras);
  hyperparams.regularize_depthwise = true;
  return hyperparams;
}

SsdBackbone AddMobilenetV1(const config::SsdFeatureExtractor& extractor,
                           const LayerHyperparams& hyperparams, NetworkBuilder* builder) {
  const FeatureMaps maps = FindSsdType(extractor.type())->maps;
  MobilenetV1Options options{extractor.depth_multiplier(), extractor.min_depth()};
  options.narrow_end = maps == FeatureMaps::kFeaturePyramid && extractor.use_depthwise();
  if (maps == FeatureMaps::kPoolingPyramid) options.last_block = 11;
  SsdBackbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV1";
  const MobilenetV1Endpoints ends =
      AddMobilenetV1Body(backbone.scope, options, hyperparams, builder);
  backbone.maps = {ends.conv2d_11_pointwise, ends.conv2d_13_pointwise};
  backbone.extra_scope = backbone.scope + "/Conv2d_13_pointwise";
  if (absl::StartsWith(extractor.type(), "embedded")) backbone.extras = {{512}, {256}, {256, 2}};
  backbone.levels = {ends.conv2d_3_pointwise, ends.conv2d_5_pointwise, ends.conv2d_11_pointwise,
                     ends.conv2d_13_pointwise};
  backbone.coarse_scope = "bottom_up_Conv2d_";
  backbone.first_coarse = 14;
  return backbone;
}

}  // namespace pushpull
