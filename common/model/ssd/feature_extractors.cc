// Tested by tests/common/model/ssd/ssd_network_test.cc.
// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
#include "common/model/ssd/feature_extractors.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/config/frozen_batch_norms.h"
#include "common/config/model_types.h"
#include "common/model/families/depths.h"
#include "common/model/families/family.h"
#include "common/model/hyperparams.h"
#include "common/model/ssd/mnas_fpn.h"

namespace pushpull {
namespace {

constexpr int kFirstBackboneLevel = 2;  // of Backbone::levels
constexpr int kLastLevel = 5;

using Extractor = config::SsdFeatureExtractor;

// What the row of a type says of its backbone.
struct ExtractorRow {
  absl::string_view type;
  LayerHyperparams (*scope)(bool keras);
  SsdBackbone (*add_backbone)(const Extractor& extractor, const LayerHyperparams& hyperparams,
                              NetworkBuilder* builder);
};

constexpr ExtractorRow kExtractors[] = {
#define PUSHPULL_ROW(type, maps, num_layers, base, scope, backbone) {type, scope, backbone},
    PUSHPULL_SSD_TYPES(PUSHPULL_ROW)
#undef PUSHPULL_ROW
};

const ExtractorRow& RowOf(absl::string_view type) {
  for (const ExtractorRow& row : kExtractors) {
    if (row.type == type) return row;
  }
  LOG(FATAL) << "no feature extractor of type " << type;
}

// Adds the layers that follow a backbone. All of them have the extractor's conv_hyperparams.
class MapBuilder {
 public:
  MapBuilder(const Extractor& extractor, LayerHyperparams hyperparams, NetworkBuilder* builder)
      : extractor_(extractor), hyperparams_(std::move(hyperparams)), builder_(*builder) {}

  // Each extra layer is a 1x1 convolution to half the depth, then one with stride 2.
  std::vector<int> AddExtraLayers(const SsdBackbone& backbone) {
    std::vector<int> maps = backbone.maps;
    const int type_layers = FindSsdType(extractor_.type())->num_layers;
    const size_t layers = type_layers > 0 ? type_layers : extractor_.num_layers();
    while (maps.size() < layers) {
      AddExtraLayer(backbone, backbone.extras[maps.size() - backbone.maps.size()], &maps);
    }
    return maps;
  }

  // The maps of the backbone's levels, each added to the next coarser one, then maps of stride 2 up
  // to max_level.
  std::vector<int> AddFeaturePyramid(const SsdBackbone& backbone) {
    const config::FeaturePyramidNetworks& fpn = extractor_.fpn();
    const std::string scope = backbone.scope + "/fpn";
    const int depth = Depth(fpn.additional_layer_depth());
    const int levels = kLastLevel - fpn.min_level() + 1;
    std::vector<int> maps(levels);
    int top_down = Node::kImage;
    for (int i = levels - 1; i >= 0; --i) {
      const int map = backbone.levels[fpn.min_level() - kFirstBackboneLevel + i];
      const int projection = builder_.AddBiased(
          {absl::StrCat(scope, "/projection_", i + 1), map, 1, 1, depth}, hyperparams_);
      if (i == levels - 1) {
        maps[i] = top_down = projection;
        continue;
      }
      top_down =
          builder_.AddNode(absl::StrCat(scope, "/upsampling_", i + 1), op::Upsample{2}, {top_down});
      top_down =
          builder_.AddNode(absl::StrCat(scope, "/add_", i + 1), op::Add(), {projection, top_down});
      maps[i] = AddPyramidLayer(absl::StrCat(scope, "/smoothing_", i + 1), top_down, 1, depth);
      // TensorFlow 2 adds the smoothed map to the next one, TensorFlow 1 the sum before it.
      if (IsKerasType(extractor_.type())) top_down = maps[i];
    }
    for (int level = kLastLevel + 1; level <= fpn.max_level(); ++level) {
      const int number = backbone.first_coarse + level - kLastLevel - 1;
      maps.push_back(AddPyramidLayer(absl::StrCat(scope, "/", backbone.coarse_scope, number),
                                     maps.back(), 2, depth));
    }
    return maps;
  }

  // The map at stride 16 and its max pools.
  std::vector<int> AddPoolingPyramid(const SsdBackbone& backbone, int layers) {
    std::vector<int> maps = {backbone.maps.front()};
    while (static_cast<int>(maps.size()) < layers) {
      const Window window = SameWindow(builder_.shape(maps.back()), 2, 2);
      maps.push_back(
          builder_.AddNode(absl::StrCat(backbone.scope, "/MaxPool2d_", maps.size() - 1, "_2x2"),
                           op::MaxPool{window}, {maps.back()}));
    }
    return maps;
  }

 private:
  int Depth(double depth) const {
    return ScaleDepth(depth, extractor_.depth_multiplier(), extractor_.min_depth());
  }

  LayerRequest Request(const std::string& scope, int input, int kernel, int stride,
                       int depth) const {
    return {scope, input, kernel, stride, depth, hyperparams_.activation};
  }

  void AddExtraLayer(const SsdBackbone& backbone, const ExtraLayer& layer, std::vector<int>* maps) {
    const size_t index = maps->size();
    const int half = Depth(layer.depth / 2.0), depth = Depth(layer.depth);
    int last = builder_.AddNormalizedOrBiased(
        Request(absl::StrCat(backbone.extra_scope, "_1_Conv2d_", index, "_1x1_", half),
                maps->back(), 1, 1, half),
        hyperparams_);
    const std::string scope = absl::StrCat(backbone.extra_scope, "_2_Conv2d_", index, "_",
                                           layer.kernel, "x", layer.kernel, "_s2_", depth);
    if (extractor_.use_depthwise()) {
      last = builder_.AddNormalizedDepthwise(
          Request(scope + "_depthwise", last, layer.kernel, 2, 0), hyperparams_);
      last = builder_.AddNormalized(Request(scope, last, 1, 1, depth), hyperparams_);
    } else {
      last = builder_.AddNormalizedOrBiased(Request(scope, last, layer.kernel, 2, depth),
                                            hyperparams_);
    }
    maps->push_back(last);
  }

  int AddPyramidLayer(const std::string& scope, int input, int stride, int depth) {
    LayerRequest request = Request(scope, input, 3, stride, depth);
    request.separable = extractor_.use_depthwise();
    return builder_.AddNormalizedOrBiased(request, hyperparams_);
  }

  const Extractor& extractor_;
  const LayerHyperparams hyperparams_;
  NetworkBuilder& builder_;
};

}  // namespace

std::vector<int> AddFeatureMaps(const config::Ssd& ssd, NetworkBuilder* builder) {
  const Extractor& extractor = ssd.feature_extractor();
  LayerHyperparams hyperparams = ResolveDetectorHyperparams(extractor.conv_hyperparams());
  const SsdType type = *FindSsdType(extractor.type());
  const ExtractorRow& row = RowOf(type.name);
  const bool override = extractor.override_base_feature_extractor_hyperparams();
  LayerHyperparams base = override ? hyperparams : row.scope(IsKerasType(extractor.type()));
  if (BatchNormsToFreeze(ssd) == FrozenBatchNorms::kBackbone) base.batch_norm->frozen = true;
  const SsdBackbone backbone = row.add_backbone(extractor, base, builder);
  MapBuilder maps(extractor, std::move(hyperparams), builder);
  switch (type.maps) {
    case FeatureMaps::kExtraLayers:
      return maps.AddExtraLayers(backbone);
    case FeatureMaps::kFeaturePyramid:
      return maps.AddFeaturePyramid(backbone);
    case FeatureMaps::kPoolingPyramid:
      return maps.AddPoolingPyramid(backbone, type.num_layers);
    case FeatureMaps::kMnasFpn:
      return AddMnasFpn(extractor, backbone, builder);
  }
  LOG(FATAL) << "no feature maps for " << extractor.type();
}

}  // namespace pushpull
