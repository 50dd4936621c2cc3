// NetworkSpec describes a network as data: an ordered list of fused layers with their shapes,
// padding, TensorFlow variable names, initializers and regularization. It does not compute
// anything. The server reads the variables from it, and the worker builds its executable graph from
// it. The structs are plain values that nobody modifies once they are built. The functions are
// thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
#define PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/detection_spec.h"
#include "common/model/image_resize.h"
#include "common/model/variable_layout.h"

namespace pushpull {

enum class ActivationFunction { kNone, kRelu, kRelu6 };

// The shape of one image's features, stored as [H, W, C].
struct FeatureShape {
  int height = 1;
  int width = 1;
  int channels = 1;
  int64_t num_elements() const { return int64_t{height} * width * channels; }
  bool operator==(const FeatureShape&) const = default;
};

// The number of rows and columns of zeros around the input of a convolution.
struct SpatialPadding {
  int top = 0;
  int bottom = 0;
  int left = 0;
  int right = 0;
  bool operator==(const SpatialPadding&) const = default;
};

// Batch normalization, y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the mean and
// variance over all axes but the channels.
struct BatchNormSpec {
  float decay = 0.997f;  // of the moving statistics
  float epsilon = 0.001f;
  bool center = true;  // there is a beta
  bool scale = true;   // there is a gamma
  // Training uses the moving statistics too, and does not update them.
  bool frozen = false;
  // Inference removes the initial value from the moving statistics.
  bool bias_corrected = false;
};

enum class LayerKind {
  kConvolution,        // weights [k, k, in, out]
  kDepthwise,          // depthwise_weights [k, k, c, 1]
  kPointwise,          // weights [1, 1, in, out]
  kGlobalAveragePool,  // no variables
  kDense,              // weights [1, 1, in, out] on a single pixel, as in slim's classifiers
};

// One fused layer: output = residual + activation(batch_norm(op(dropout(input)) + biases)). Several
// layers may read the output of the same layer.
struct LayerSpec {
  static constexpr int kImage = -1;  // for `input`: the network's input
  static constexpr int kNone = -2;   // for `residual`: there is none

  LayerKind kind = LayerKind::kConvolution;
  std::string scope;     // "MobilenetV2/expanded_conv_1/expand"
  int input = kImage;    // index of the layer whose output is read; an earlier layer
  int residual = kNone;  // index of the layer whose output is added; an earlier layer
  FeatureShape input_shape;
  FeatureShape output_shape;
  int kernel = 1;
  int stride = 1;
  SpatialPadding padding;
  std::optional<BatchNormSpec> batch_norm;
  bool has_biases = false;
  ActivationFunction activation = ActivationFunction::kNone;
  float dropout_keep_probability = 1.0f;  // of the input's elements, in training
  Initializer weights_initializer;
  float biases_initial_value = 0.0f;
  float l2_weight = 0.0f;  // of the weights; biases and batch norms are never regularized
};

struct NetworkSpec {
  std::string name;  // "MobilenetV2"
  FeatureShape input;
  // How an image is scaled and padded to the input. nullopt: it is scaled to fill the input.
  std::optional<AspectRatioResize> keep_aspect_ratio;
  int num_classes = 0;  // without a detector's background class
  float label_smoothing = 0.0f;
  // In topological order. The last layer of a classifier gives the class scores,
  // [1, 1, num_classes].
  std::vector<LayerSpec> layers;
  // Set for a detector. Its heads name the layers that give boxes and scores.
  std::optional<DetectionSpec> detection;
};

// Returns the indices of the layers that the loss reads. For a classifier this is the last layer.
// For a detector these are box_layer and class_layer of the first head, then of the second, and so
// on.
std::vector<int> OutputLayers(const NetworkSpec& network);

// TensorFlow's SAME padding of one axis. The output size is ceil(size / stride). If the padding is
// an odd number, the extra row or column comes after the input.
struct AxisPadding {
  int before = 0;
  int after = 0;
  int output_size = 0;
};
AxisPadding SamePadding(int size, int kernel, int stride);

// Sets output_shape and padding of a convolution from its input_shape, kernel and stride (SAME).
void ApplySamePadding(int output_channels, LayerSpec* layer);

// Return the full name of a variable of a layer, or an empty string if the layer has none.
std::string WeightsName(const LayerSpec& layer);
std::string BiasesName(const LayerSpec& layer);
std::string GammaName(const LayerSpec& layer);
std::string BetaName(const LayerSpec& layer);
std::string MovingMeanName(const LayerSpec& layer);
std::string MovingVarianceName(const LayerSpec& layer);

// Returns the shape of the layer's weights, or an empty shape if it has none.
std::vector<int64_t> WeightsShape(const LayerSpec& layer);

// Returns all variables, layer by layer, in the order weights, biases, gamma, beta, moving mean,
// moving variance. The moving statistics of a frozen batch norm are frozen.
std::vector<VariableSpec> DeclareVariables(const NetworkSpec& network);

// Returns the largest weight that the initial value still has in any moving statistic after
// num_updates updates: the maximum of decay^num_updates over the batch norms that are not frozen.
// Returns 0 if there are none.
double InitialStatisticsShare(const NetworkSpec& network, int64_t num_updates);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_NETWORK_SPEC_H_
