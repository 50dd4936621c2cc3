#include "common/model/ssd_mobilenet.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/model/detection_config.h"
#include "common/model/families/depths.h"
#include "common/model/families/mobilenet_v1.h"
#include "common/model/families/mobilenet_v2.h"
#include "common/model/hyperparams.h"
#include "common/model/image_resize.h"
#include "common/model/network_builder.h"

namespace pushpull {
namespace {

constexpr int kImageChannels = 3;
constexpr float kBackboneDecay = 0.9997f;
// Depths, before depth_multiplier, of the feature maps that follow the backbone's two.
constexpr int kExtraDepths[] = {512, 256, 256, 128};
constexpr int kBackboneMaps = 2;

class SsdBuilder {
 public:
  SsdBuilder(const config::Ssd& ssd, DetectionSpec detection)
      : ssd_(ssd),
        extractor_(ssd.feature_extractor()),
        predictor_(ssd.box_predictor().convolutional_box_predictor()),
        detection_(std::move(detection)),
        builder_(extractor_.type(),
                 {ResizedSize(ssd.image_resizer()).height, ResizedSize(ssd.image_resizer()).width,
                  kImageChannels},
                 ssd.freeze_batchnorm()) {}

  NetworkSpec Build() && {
    ResolveScopes();
    AddBackbone();
    for (int i = kBackboneMaps; i < extractor_.num_layers(); ++i) AddExtraMap(i);
    for (size_t i = 0; i < maps_.size(); ++i) AddHead(static_cast<int>(i));
    NetworkSpec network = std::move(builder_).Finish();
    network.num_classes = ssd_.num_classes();
    network.keep_aspect_ratio = ResolveAspectRatioResize(ssd_.image_resizer());
    network.detection = std::move(detection_);
    return network;
  }

 private:
  void ResolveScopes() {
    extra_ = ResolveHyperparams(extractor_.conv_hyperparams());
    extra_.regularize_depthwise = true;
    backbone_ = SlimHyperparams();
    backbone_.batch_norm->decay = kBackboneDecay;
    if (extractor_.override_base_feature_extractor_hyperparams()) backbone_ = extra_;
    heads_ = ResolveHyperparams(predictor_.conv_hyperparams());
    heads_.regularize_depthwise = true;
  }

  void AddBackbone() {
    if (extractor_.type() == "ssd_mobilenet_v1") {
      scope_ = "FeatureExtractor/MobilenetV1";
      extra_scope_ = scope_ + "/Conv2d_13_pointwise";
      const MobilenetV1Endpoints endpoints = AddMobilenetV1Body(
          scope_, extractor_.depth_multiplier(), extractor_.min_depth(), backbone_, &builder_);
      maps_ = {endpoints.conv2d_11_pointwise, endpoints.conv2d_13_pointwise};
      return;
    }
    scope_ = "FeatureExtractor/MobilenetV2";
    extra_scope_ = scope_ + "/layer_19";
    MobilenetV2Widths widths;
    widths.multiplier = extractor_.depth_multiplier();
    widths.min_depth = extractor_.min_depth();
    const MobilenetV2Endpoints endpoints = AddMobilenetV2Body(scope_, widths, backbone_, &builder_);
    maps_ = {endpoints.layer_15_expansion, endpoints.layer_19};
  }

  int ExtraDepth(double depth) const {
    return ScaleDepth(depth, extractor_.depth_multiplier(), extractor_.min_depth());
  }

  // Adds a 1x1 convolution to half the depth, then a 3x3 convolution with stride 2.
  void AddExtraMap(int index) {
    const int nominal = kExtraDepths[index - kBackboneMaps];
    const int half = ExtraDepth(nominal / 2.0);
    const int depth = ExtraDepth(nominal);
    int last =
        builder_.AddNormalized({absl::StrCat(extra_scope_, "_1_Conv2d_", index, "_1x1_", half),
                                maps_.back(), 1, 1, half, extra_.activation},
                               extra_);
    const std::string scope = absl::StrCat(extra_scope_, "_2_Conv2d_", index, "_3x3_s2_", depth);
    if (extractor_.use_depthwise()) {
      last = builder_.AddNormalizedDepthwise(
          {scope + "_depthwise", last, 3, 2, 0, extra_.activation}, extra_);
      last = builder_.AddNormalized({scope, last, 1, 1, depth, extra_.activation}, extra_);
    } else {
      last = builder_.AddNormalized({scope, last, 3, 2, depth, extra_.activation}, extra_);
    }
    maps_.push_back(last);
  }

  int AnchorsPerLocation(int index) const {
    const SsdAnchorSpec& anchors = detection_.anchors;
    if (index == 0 && anchors.reduce_boxes_in_lowest_layer) return 3;
    const int interpolated = anchors.interpolated_scale_aspect_ratio > 0.0f ? 1 : 0;
    return static_cast<int>(anchors.aspect_ratios.size()) + interpolated;
  }

  // Adds a convolution, or with use_depthwise a depthwise one and a 1x1 convolution. A dropout
  // comes before them.
  int AddPredictor(LayerRequest request) {
    request.kernel = predictor_.kernel_size();
    if (predictor_.use_depthwise()) {
      LayerRequest depthwise = request;
      depthwise.scope += "_depthwise";
      depthwise.activation = heads_.activation;
      request.input = builder_.AddNormalizedDepthwise(depthwise, heads_);
      request.kernel = 1;
      request.keep_probability = 1.0f;
    }
    return builder_.AddBiased(request, heads_);
  }

  // Adds num_layers_before_predictor 1x1 convolutions. Returns the node that both predictors read.
  int AddLayersBeforePredictor(const std::string& scope, int map) {
    const int depth = std::max(std::min(builder_.shape(map).channels, predictor_.max_depth()),
                               predictor_.min_depth());
    if (depth == 0) return map;
    int last = map;
    for (int i = 0; i < predictor_.num_layers_before_predictor(); ++i) {
      last = builder_.AddNormalized({absl::StrCat(scope, "/Conv2d_", i, "_1x1_", depth), last, 1, 1,
                                     depth, heads_.activation},
                                    heads_);
    }
    return last;
  }

  void AddHead(int index) {
    const std::string scope = absl::StrCat("BoxPredictor_", index);
    const int input = AddLayersBeforePredictor(scope, maps_[index]);
    const FeatureShape map = builder_.shape(maps_[index]);
    DetectionHead head;
    head.height = map.height;
    head.width = map.width;
    head.anchors_per_location = AnchorsPerLocation(index);
    LayerRequest boxes{scope + "/BoxEncodingPredictor", input};
    boxes.depth = head.anchors_per_location * kBoxCodeSize;
    head.box_node = AddPredictor(boxes);
    LayerRequest classes{scope + "/ClassPredictor", input};
    classes.depth = head.anchors_per_location * (ssd_.num_classes() + 1);
    classes.biases_initial_value = predictor_.class_prediction_bias_init();
    if (predictor_.use_dropout()) classes.keep_probability = predictor_.dropout_keep_probability();
    head.class_node = AddPredictor(classes);
    detection_.heads.push_back(head);
  }

  const config::Ssd& ssd_;
  const config::SsdFeatureExtractor& extractor_;
  const config::ConvolutionalBoxPredictor& predictor_;
  DetectionSpec detection_;
  NetworkBuilder builder_;
  LayerHyperparams backbone_, extra_, heads_;
  std::string scope_, extra_scope_;
  std::vector<int> maps_;  // the nodes that give the feature maps
};

}  // namespace

NetworkSpec BuildSsdMobilenet(const config::Ssd& ssd) {
  return SsdBuilder(ssd, ResolveDetection(ssd)).Build();
}

}  // namespace pushpull
