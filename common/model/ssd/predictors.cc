// Tested by tests/common/model/ssd/ssd_network_test.cc.
// Tested by tests/common/model/ssd/feature_pyramid_test.cc.
#include "common/model/ssd/predictors.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/config/model_types.h"
#include "common/model/hyperparams.h"

namespace pushpull {
namespace {

DetectionHead HeadOf(const FeatureShape& map, int anchors) {
  DetectionHead head;
  head.height = map.height;
  head.width = map.width;
  head.anchors_per_location = anchors;
  return head;
}

class ConvolutionalPredictor {
 public:
  ConvolutionalPredictor(const config::Ssd& ssd, size_t num_maps, NetworkBuilder* builder)
      : predictor_(ssd.box_predictor().convolutional_box_predictor()),
        has_scopes_(num_maps > 1 || IsKerasType(ssd.feature_extractor().type())),
        num_classes_(ssd.num_classes()),
        hyperparams_(ResolveDetectorHyperparams(predictor_.conv_hyperparams())),
        builder_(*builder) {}

  DetectionHead Add(size_t index, int map, int anchors) {
    const std::string scope = has_scopes_ ? absl::StrCat("BoxPredictor_", index, "/") : "";
    const int input = AddLayersBefore(scope, map);
    DetectionHead head = HeadOf(builder_.shape(map), anchors);
    LayerRequest boxes{scope + "BoxEncodingPredictor", input};
    boxes.depth = anchors * kBoxCodeSize;
    head.box_node = AddLast(boxes);
    LayerRequest classes{scope + "ClassPredictor", input};
    classes.depth = anchors * (num_classes_ + 1);
    classes.biases_initial_value = predictor_.class_prediction_bias_init();
    if (predictor_.use_dropout()) classes.keep_probability = predictor_.dropout_keep_probability();
    head.class_node = AddLast(classes);
    return head;
  }

 private:
  // Adds num_layers_before_predictor 1x1 convolutions. Returns the node that both predictors read.
  int AddLayersBefore(const std::string& scope, int map) {
    const int depth = std::max(std::min(builder_.shape(map).channels, predictor_.max_depth()),
                               predictor_.min_depth());
    if (depth == 0) return map;
    int last = map;
    for (int i = 0; i < predictor_.num_layers_before_predictor(); ++i) {
      last = builder_.AddNormalizedOrBiased({absl::StrCat(scope, "Conv2d_", i, "_1x1_", depth),
                                             last, 1, 1, depth, hyperparams_.activation},
                                            hyperparams_);
    }
    return last;
  }

  // Adds a convolution, or with use_depthwise a depthwise one and a 1x1 convolution. A dropout
  // comes before them.
  int AddLast(LayerRequest request) {
    request.kernel = predictor_.kernel_size();
    if (predictor_.use_depthwise()) {
      LayerRequest depthwise = request;
      depthwise.scope += "_depthwise";
      depthwise.activation = hyperparams_.activation;
      request.input = builder_.AddNormalizedDepthwise(depthwise, hyperparams_);
      request.kernel = 1;
      request.keep_probability = 1.0f;
    }
    return builder_.AddBiased(request, hyperparams_);
  }

  const config::ConvolutionalBoxPredictor& predictor_;
  const bool has_scopes_;
  const int num_classes_;
  const LayerHyperparams hyperparams_;
  NetworkBuilder& builder_;
};

class WeightSharedPredictor {
 public:
  WeightSharedPredictor(const config::Ssd& ssd, const std::vector<int>& maps,
                        NetworkBuilder* builder)
      : predictor_(ssd.box_predictor().weight_shared_convolutional_box_predictor()),
        num_classes_(ssd.num_classes()),
        hyperparams_(ResolveDetectorHyperparams(predictor_.conv_hyperparams())),
        builder_(*builder),
        projected_channels_(MostFrequentChannels(maps)) {}

  DetectionHead Add(size_t index, int map, int anchors) {
    const std::string feature = absl::StrCat("feature_", index);
    DetectionHead head = HeadOf(builder_.shape(map), anchors);
    const int input = AddProjection(index, map);
    const bool one_tower = predictor_.share_prediction_tower();
    const int tower =
        AddTower(one_tower ? "PredictionTower" : "BoxPredictionTower", feature, input);
    LayerRequest boxes = Shared("BoxPredictor", feature, tower, anchors * kBoxCodeSize);
    head.box_node = builder_.AddBiased(boxes, hyperparams_);
    LayerRequest classes =
        Shared("ClassPredictor", feature,
               one_tower ? tower : AddTower("ClassPredictionTower", feature, input),
               anchors * (num_classes_ + 1));
    classes.biases_initial_value = predictor_.class_prediction_bias_init();
    if (predictor_.use_dropout()) classes.keep_probability = predictor_.dropout_keep_probability();
    head.class_node = builder_.AddBiased(classes, hyperparams_);
    return head;
  }

 private:
  static constexpr char kScope[] = "WeightSharedConvolutionalBoxPredictor";

  // The number of channels of most maps, the first of several; 0 if all maps have the same number.
  int MostFrequentChannels(const std::vector<int>& maps) const {
    std::vector<int> channels;
    for (const int map : maps) channels.push_back(builder_.shape(map).channels);
    const auto count = [&](int c) { return std::count(channels.begin(), channels.end(), c); };
    const int best = *std::max_element(channels.begin(), channels.end(),
                                       [&](int a, int b) { return count(a) < count(b); });
    return count(best) == static_cast<int64_t>(channels.size()) ? 0 : best;
  }

  int AddProjection(size_t index, int map) {
    if (projected_channels_ == 0) return map;
    return AddLayer(
        {absl::StrCat(kScope, "/ProjectionLayer/conv2d_", index), map, 1, 1, projected_channels_});
  }

  // A layer whose weights are those of `name` on all maps.
  LayerRequest Shared(const std::string& name, const std::string& feature, int input,
                      int depth) const {
    LayerRequest request;
    request.shared_scope = absl::StrCat(kScope, "/", name);
    request.scope = absl::StrCat(request.shared_scope, "/", feature);
    request.input = input;
    request.kernel = predictor_.kernel_size();
    request.depth = depth;
    request.separable = predictor_.use_depthwise();
    return request;
  }

  int AddTower(const std::string& name, const std::string& feature, int input) {
    int last = input;
    for (int i = 0; i < predictor_.num_layers_before_predictor(); ++i) {
      LayerRequest layer =
          Shared(absl::StrCat(name, "/conv2d_", i), feature, last, predictor_.depth());
      layer.batch_norm_scope = absl::StrCat(layer.shared_scope, "/BatchNorm/", feature);
      layer.activation = Relu6UnlessSwish(hyperparams_.activation);
      last = AddLayer(layer);
    }
    return last;
  }

  int AddLayer(const LayerRequest& layer) {
    return builder_.AddNormalizedOrBiased(layer, hyperparams_);
  }

  const config::WeightSharedConvolutionalBoxPredictor& predictor_;
  const int num_classes_;
  const LayerHyperparams hyperparams_;
  NetworkBuilder& builder_;
  const int projected_channels_;
};

template <typename Predictor>
std::vector<DetectionHead> AddToAll(Predictor predictor, const std::vector<int>& maps,
                                    const std::vector<int>& anchors) {
  std::vector<DetectionHead> heads;
  for (size_t i = 0; i < maps.size(); ++i) {
    heads.push_back(predictor.Add(i, maps[i], anchors[i]));
  }
  return heads;
}

}  // namespace

std::vector<DetectionHead> AddPredictors(const config::Ssd& ssd, const std::vector<int>& maps,
                                         const std::vector<int>& anchors, NetworkBuilder* builder) {
  if (ssd.box_predictor().has_weight_shared_convolutional_box_predictor()) {
    return AddToAll(WeightSharedPredictor(ssd, maps, builder), maps, anchors);
  }
  return AddToAll(ConvolutionalPredictor(ssd, maps.size(), builder), maps, anchors);
}

}  // namespace pushpull
