// A network as data: an ordered list of fused layers with their shapes, padding, TensorFlow
// variable names, initializers and regularisation. It holds no mathematics: the server reads the
// variables from it, the worker builds its executable graph from it. Plain values; immutable by
// convention once built.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/detection_spec.h"
#include "common/model/image_resize.h"
#include "common/variable_layout.h"

namespace pushpull {

enum class ActivationFunction { kNone, kRelu, kRelu6 };

// Height, width and channels of one image's features, stored [H, W, C].
struct FeatureShape {
  int height = 1;
  int width = 1;
  int channels = 1;
  int64_t num_elements() const { return int64_t{height} * width * channels; }
  bool operator==(const FeatureShape&) const = default;
};

// Rows and columns of zeros around the input of a convolution.
struct SpatialPadding {
  int top = 0;
  int bottom = 0;
  int left = 0;
  int right = 0;
  bool operator==(const SpatialPadding&) const = default;
};

// y = gamma * (x - mean) / sqrt(variance + epsilon) + beta over all but the channel axis.
struct BatchNormSpec {
  float decay = 0.997f;    // of the moving statistics
  float epsilon = 0.001f;  // inside the square root
  bool center = true;      // has beta
  bool scale = true;       // has gamma
  bool frozen = false;  // normalises by the moving statistics in training too and leaves them alone
  // Inference divides the initial value out of the moving statistics.
  bool bias_corrected = false;
};

enum class LayerKind {
  kConvolution,        // weights [k, k, in, out]
  kDepthwise,          // depthwise_weights [k, k, c, 1]
  kPointwise,          // weights [1, 1, in, out]
  kGlobalAveragePool,  // no variables
  kDense,              // weights [1, 1, in, out] on one pixel, as slim writes its classifier
};

// One fused layer: output = residual + activation(batch_norm(op(dropout(input)) + biases)). A value
// may be read by several layers.
struct LayerSpec {
  static constexpr int kImage = -1;  // `input` of the first layer
  static constexpr int kNone = -2;

  LayerKind kind = LayerKind::kConvolution;
  std::string scope;     // "MobilenetV2/expanded_conv_1/expand"
  int input = kImage;    // index of the layer whose output is read, always an earlier one
  int residual = kNone;  // index of the layer whose output is added to this one's
  FeatureShape input_shape;
  FeatureShape output_shape;
  int kernel = 1;
  int stride = 1;
  SpatialPadding padding;
  std::optional<BatchNormSpec> batch_norm;
  bool has_biases = false;
  ActivationFunction activation = ActivationFunction::kNone;
  float dropout_keep_probability = 1.0f;  // of the input, in training
  Initializer weights_initializer;
  float biases_initial_value = 0.0f;
  float l2_weight = 0.0f;  // of the weights; biases and batch norm are never regularised
};

struct NetworkSpec {
  std::string name;  // "MobilenetV2"
  FeatureShape input;
  // Of the picture within the input; nullopt: it fills it.
  std::optional<AspectRatioResize> keep_aspect_ratio;
  int num_classes = 0;
  float label_smoothing = 0.0f;
  // A classifier's last layer gives the class scores, [1, 1, num_classes].
  std::vector<LayerSpec> layers;
  // Present in a detector; its heads name the layers that give boxes and scores.
  std::optional<DetectionSpec> detection;
};

// The layers whose values the loss reads: a classifier's last one; of a detector each head's
// box_layer and class_layer, head by head.
std::vector<int> OutputLayers(const NetworkSpec& network);

// TensorFlow's SAME padding of one axis: the output is ceil(size / stride) and the odd row goes
// after.
struct AxisPadding {
  int before = 0;
  int after = 0;
  int output_size = 0;
};
AxisPadding SamePadding(int size, int kernel, int stride);

// Sets output_shape and padding of a convolution from its input_shape, kernel and stride (SAME).
void ApplySamePadding(int output_channels, LayerSpec* layer);

// Full names of a layer's variables. Empty for a layer that has none of that kind.
std::string WeightsName(const LayerSpec& layer);
std::string BiasesName(const LayerSpec& layer);
std::string GammaName(const LayerSpec& layer);
std::string BetaName(const LayerSpec& layer);
std::string MovingMeanName(const LayerSpec& layer);
std::string MovingVarianceName(const LayerSpec& layer);

// Shape of the layer's weights; empty for a layer without.
std::vector<int64_t> WeightsShape(const LayerSpec& layer);

// All variables in forward order: per layer weights, biases, gamma, beta, moving mean, moving
// variance. Moving statistics of a frozen batch norm are frozen.
std::vector<VariableSpec> DeclareVariables(const NetworkSpec& network);

// The share of the initial value that the slowest moving statistic still holds after so many
// updates: the largest decay^num_updates over the batch norms that are not frozen; 0 without any.
double InitialStatisticsShare(const NetworkSpec& network, int64_t num_updates);

// Multiply-adds of one image's forward pass in convolutions and dense layers.
int64_t CountMultiplyAdds(const LayerSpec& layer);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
