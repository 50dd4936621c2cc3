// Tested by tests/common/model/ssd/ssd_network_test.cc.
// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
#include "common/model/ssd/feature_extractors.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

#include "common/config/ssd_types.h"
#include "common/model/families/depths.h"
#include "common/model/families/mobiledet.h"
#include "common/model/families/mobilenet_edgetpu.h"
#include "common/model/families/mobilenet_v1.h"
#include "common/model/families/mobilenet_v2.h"
#include "common/model/families/mobilenet_v3.h"
#include "common/model/families/resnet_v1.h"
#include "common/model/hyperparams.h"

namespace pushpull {
namespace {

constexpr int kFirstLevel = 2;  // of Backbone::levels
constexpr int kLastLevel = 5;

// A layer of stride 2 after the backbone.
struct ExtraLayer {
  int depth;  // before depth_multiplier
  int kernel = 3;
};

// What a backbone gives to the layers that follow. Nodes are those of its last values at a stride.
struct Backbone {
  std::string scope;
  std::vector<int> maps;           // the first maps of a plain SSD
  std::string extra_scope;         // prefix of the extra layers' scopes
  std::vector<ExtraLayer> extras;  // of a plain SSD
  std::array<int, 4> levels{};     // the nodes at strides 4, 8, 16 and 32
  std::string coarse_scope;        // prefix of the scopes of a pyramid's layers above level 5
  int first_coarse = 0;            // number of the first of them
};

using Extractor = config::SsdFeatureExtractor;

const std::vector<ExtraLayer>& SsdExtras() {
  static const auto* const extras = new std::vector<ExtraLayer>{{512}, {256}, {256}, {128}};
  return *extras;
}

Backbone AddMobilenetV1(const Extractor& extractor, const LayerHyperparams& hyperparams,
                        NetworkBuilder* builder) {
  const FeatureMaps maps = FindSsdType(extractor.type())->maps;
  Backbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV1";
  backbone.extra_scope = backbone.scope + "/Conv2d_13_pointwise";
  backbone.coarse_scope = "bottom_up_Conv2d_";
  backbone.first_coarse = 14;
  MobilenetV1Options options{extractor.depth_multiplier(), extractor.min_depth()};
  options.narrow_end = maps == FeatureMaps::kFeaturePyramid && extractor.use_depthwise();
  if (maps == FeatureMaps::kPoolingPyramid) options.last_block = 11;
  const MobilenetV1Endpoints ends =
      AddMobilenetV1Body(backbone.scope, options, hyperparams, builder);
  backbone.maps = {ends.conv2d_11_pointwise, ends.conv2d_13_pointwise};
  backbone.extras = SsdExtras();
  backbone.levels = {ends.conv2d_3_pointwise, ends.conv2d_5_pointwise, ends.conv2d_11_pointwise,
                     ends.conv2d_13_pointwise};
  return backbone;
}

Backbone AddEmbeddedMobilenetV1(const Extractor& extractor, const LayerHyperparams& hyperparams,
                                NetworkBuilder* builder) {
  Backbone backbone = AddMobilenetV1(extractor, hyperparams, builder);
  backbone.extras = {{512}, {256}, {256, 2}};
  return backbone;
}

Backbone AddMobilenetV2(const Extractor& extractor, const LayerHyperparams& hyperparams,
                        NetworkBuilder* builder) {
  Backbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV2";
  backbone.extra_scope = backbone.scope + "/layer_19";
  backbone.coarse_scope = "bottom_up_Conv2d_";
  backbone.first_coarse = 20;
  MobilenetV2Widths widths{extractor.depth_multiplier(), extractor.min_depth()};
  const bool pyramid = FindSsdType(extractor.type())->maps == FeatureMaps::kFeaturePyramid;
  if (pyramid && extractor.use_depthwise()) widths.last_depth = 256;
  const MobilenetV2Endpoints ends =
      AddMobilenetV2Body(backbone.scope, widths, hyperparams, builder);
  backbone.maps = {ends.layer_15_expansion, ends.layer_19};
  backbone.extras = SsdExtras();
  backbone.levels = {ends.layer_4, ends.layer_7, ends.layer_14, ends.layer_19};
  return backbone;
}

// slim's scopes of these networks keep gamma and beta whatever the config says.
LayerHyperparams WithGammaAndBeta(LayerHyperparams hyperparams) {
  hyperparams.batch_norm->center = hyperparams.batch_norm->scale = true;
  return hyperparams;
}

template <MobilenetV3Size kSize>
Backbone AddMobilenetV3(const Extractor& extractor, const LayerHyperparams& hyperparams,
                        NetworkBuilder* builder) {
  Backbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetV3";
  backbone.extra_scope =
      backbone.scope + (kSize == MobilenetV3Size::kLarge ? "/layer_17" : "/layer_13");
  const MobilenetV3Options options{kSize, extractor.depth_multiplier(), extractor.min_depth(),
                                   /*reduced_tail=*/true};
  const MobilenetV3Endpoints ends =
      AddMobilenetV3Body(backbone.scope, options, WithGammaAndBeta(hyperparams), builder);
  backbone.maps = {ends.stride_16_expansion, ends.stride_32};
  backbone.extras = SsdExtras();
  return backbone;
}

Backbone AddMobilenetEdgetpu(const Extractor& extractor, const LayerHyperparams& hyperparams,
                             NetworkBuilder* builder) {
  Backbone backbone;
  backbone.scope = "FeatureExtractor/MobilenetEdgeTPU";
  backbone.extra_scope = backbone.scope + "/layer_23";
  const MobilenetEdgetpuOptions options{extractor.depth_multiplier(), extractor.min_depth()};
  const MobilenetEdgetpuEndpoints ends =
      AddMobilenetEdgetpuBody(backbone.scope, options, WithGammaAndBeta(hyperparams), builder);
  backbone.maps = {ends.layer_18_expansion, ends.layer_23};
  backbone.extras = SsdExtras();
  return backbone;
}

template <MobiledetVariant kVariant>
Backbone AddMobiledet(const Extractor& extractor, const LayerHyperparams& hyperparams,
                      NetworkBuilder* builder) {
  constexpr absl::string_view kNames[] = {"CPU", "DSP", "EdgeTPU", "GPU"};
  Backbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/MobileDet", kNames[static_cast<int>(kVariant)]);
  backbone.extra_scope = backbone.scope + "/C5";
  const MobiledetEndpoints ends = AddMobiledetBody(
      backbone.scope, {kVariant, extractor.depth_multiplier()}, hyperparams, builder);
  backbone.maps = {ends.c4, ends.c5};
  backbone.extras = SsdExtras();
  return backbone;
}

template <int kLayers>
Backbone AddResnet(const Extractor& extractor, const LayerHyperparams& hyperparams,
                   NetworkBuilder* builder) {
  Backbone backbone;
  backbone.scope = absl::StrCat("FeatureExtractor/resnet_v1_", kLayers);
  backbone.coarse_scope = "bottom_up_block";
  backbone.first_coarse = 5;
  ResnetV1Options options{kLayers, extractor.depth_multiplier(), extractor.min_depth()};
  options.stride_after_blocks = true;
  backbone.levels = AddResnetV1Body(backbone.scope, options, hyperparams, builder).blocks;
  return backbone;
}

// slim's training scopes.
LayerHyperparams MobilenetScope() {
  LayerHyperparams hyperparams = SlimHyperparams();
  hyperparams.batch_norm->decay = 0.9997f;
  return hyperparams;
}

LayerHyperparams ResnetScope() {
  LayerHyperparams hyperparams;
  hyperparams.initializer.mutable_variance_scaling_initializer();
  hyperparams.l2_weight = 1e-4f;
  hyperparams.activation = ActivationFunction::kRelu;
  hyperparams.batch_norm->epsilon = 1e-5f;
  return hyperparams;
}

// A row for each row of common/config/ssd_types.cc.
struct ExtractorRow {
  absl::string_view type;
  LayerHyperparams (*scope)();
  Backbone (*add_backbone)(const Extractor& extractor, const LayerHyperparams& hyperparams,
                           NetworkBuilder* builder);
};
constexpr ExtractorRow kExtractors[] = {
    {"ssd_mobilenet_v1", MobilenetScope, AddMobilenetV1},
    {"ssd_mobilenet_v2", MobilenetScope, AddMobilenetV2},
    {"ssd_mobilenet_v3_large", MobilenetScope, AddMobilenetV3<MobilenetV3Size::kLarge>},
    {"ssd_mobilenet_v3_small", MobilenetScope, AddMobilenetV3<MobilenetV3Size::kSmall>},
    {"ssd_mobilenet_edgetpu", MobilenetScope, AddMobilenetEdgetpu},
    {"ssd_mobiledet_cpu", MobiledetHyperparams, AddMobiledet<MobiledetVariant::kCpu>},
    {"ssd_mobiledet_dsp", MobiledetHyperparams, AddMobiledet<MobiledetVariant::kDsp>},
    {"ssd_mobiledet_edgetpu", MobiledetHyperparams, AddMobiledet<MobiledetVariant::kEdgeTpu>},
    {"ssd_mobiledet_gpu", MobiledetHyperparams, AddMobiledet<MobiledetVariant::kGpu>},
    {"ssd_mobilenet_v1_fpn", MobilenetScope, AddMobilenetV1},
    {"ssd_mobilenet_v2_fpn", MobilenetScope, AddMobilenetV2},
    {"ssd_resnet50_v1_fpn", ResnetScope, AddResnet<50>},
    {"ssd_resnet101_v1_fpn", ResnetScope, AddResnet<101>},
    {"ssd_resnet152_v1_fpn", ResnetScope, AddResnet<152>},
    {"ssd_mobilenet_v1_ppn", MobilenetScope, AddMobilenetV1},
    {"embedded_ssd_mobilenet_v1", MobilenetScope, AddEmbeddedMobilenetV1},
};

const ExtractorRow& RowOf(absl::string_view type) {
  const absl::string_view plain = absl::StripSuffix(type, "_keras");
  for (const ExtractorRow& row : kExtractors) {
    if (row.type == plain) return row;
  }
  LOG(FATAL) << "no feature extractor of type " << type;
}

// Adds the layers that follow a backbone. All of them have the extractor's conv_hyperparams.
class MapBuilder {
 public:
  MapBuilder(const Extractor& extractor, LayerHyperparams hyperparams, NetworkBuilder* builder)
      : extractor_(extractor), hyperparams_(std::move(hyperparams)), builder_(*builder) {}

  // Each extra layer is a 1x1 convolution to half the depth, then one with stride 2.
  std::vector<int> AddExtraLayers(const Backbone& backbone) {
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
  std::vector<int> AddFeaturePyramid(const Backbone& backbone) {
    const config::FeaturePyramidNetworks& fpn = extractor_.fpn();
    const std::string scope = backbone.scope + "/fpn";
    const int depth = Depth(fpn.additional_layer_depth());
    const int levels = kLastLevel - fpn.min_level() + 1;
    std::vector<int> maps(levels);
    int top_down = Node::kImage;
    for (int i = levels - 1; i >= 0; --i) {
      const int map = backbone.levels[fpn.min_level() - kFirstLevel + i];
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
    }
    for (int level = kLastLevel + 1; level <= fpn.max_level(); ++level) {
      const int number = backbone.first_coarse + level - kLastLevel - 1;
      maps.push_back(AddPyramidLayer(absl::StrCat(scope, "/", backbone.coarse_scope, number),
                                     maps.back(), 2, depth));
    }
    return maps;
  }

  // The map at stride 16 and its max pools.
  std::vector<int> AddPoolingPyramid(const Backbone& backbone, int layers) {
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

  void AddExtraLayer(const Backbone& backbone, const ExtraLayer& layer, std::vector<int>* maps) {
    const size_t index = maps->size();
    const int half = Depth(layer.depth / 2.0), depth = Depth(layer.depth);
    int last = builder_.AddNormalized(
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
      last = builder_.AddNormalized(Request(scope, last, layer.kernel, 2, depth), hyperparams_);
    }
    maps->push_back(last);
  }

  int AddPyramidLayer(const std::string& scope, int input, int stride, int depth) {
    LayerRequest request = Request(scope, input, 3, stride, depth);
    request.separable = extractor_.use_depthwise();
    return builder_.AddNormalized(request, hyperparams_);
  }

  const Extractor& extractor_;
  const LayerHyperparams hyperparams_;
  NetworkBuilder& builder_;
};

}  // namespace

std::vector<int> AddFeatureMaps(const config::SsdFeatureExtractor& extractor,
                                NetworkBuilder* builder) {
  LayerHyperparams hyperparams = ResolveHyperparams(extractor.conv_hyperparams());
  hyperparams.regularize_depthwise = true;
  const SsdType type = *FindSsdType(extractor.type());
  const ExtractorRow& row = RowOf(extractor.type());
  const bool override = extractor.override_base_feature_extractor_hyperparams();
  const Backbone backbone =
      row.add_backbone(extractor, override ? hyperparams : row.scope(), builder);
  MapBuilder maps(extractor, std::move(hyperparams), builder);
  switch (type.maps) {
    case FeatureMaps::kExtraLayers:
      return maps.AddExtraLayers(backbone);
    case FeatureMaps::kFeaturePyramid:
      return maps.AddFeaturePyramid(backbone);
    case FeatureMaps::kPoolingPyramid:
      return maps.AddPoolingPyramid(backbone, type.num_layers);
  }
  LOG(FATAL) << "no feature maps for " << extractor.type();
}

}  // namespace pushpull
