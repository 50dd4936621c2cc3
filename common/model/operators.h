// The operators of which a network is made, as plain values, and the shapes of what they compute.
// Thread-safe functions.
#ifndef PUSHPULL_COMMON_MODEL_OPERATORS_H_
#define PUSHPULL_COMMON_MODEL_OPERATORS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pushpull {

enum class ActivationFunction {
  kNone,
  kRelu,         // max(x, 0)
  kRelu6,        // min(max(x, 0), 6)
  kLeakyRelu,    // x, or negative_slope * x if x < 0
  kHardSigmoid,  // relu6(x + 3) / 6
  kHardSwish,    // x * relu6(x + 3) / 6
  kSigmoid,      // 1 / (1 + exp(-x))
  kSwish,        // x * sigmoid(x)
};

// "Relu6": the last part of the name of an activation's node, as in TensorFlow.
std::string ActivationName(ActivationFunction function);
// Returns all of them, in the order of the enum: those that have a name.
std::vector<ActivationFunction> AllActivationFunctions();

// The shape of one image's features, stored as [H, W, C].
struct FeatureShape {
  int height = 1;
  int width = 1;
  int channels = 1;
  int64_t num_elements() const { return int64_t{height} * width * channels; }
  bool operator==(const FeatureShape&) const = default;
};

// Returns the shape as "HxWxC".
std::string ToString(const FeatureShape& shape);

// The number of rows and columns of zeros around the input of a convolution.
struct SpatialPadding {
  int top = 0;
  int bottom = 0;
  int left = 0;
  int right = 0;
  bool operator==(const SpatialPadding&) const = default;
};

// A square window that slides over rows and columns.
struct Window {
  int kernel = 1;
  int stride = 1;
  SpatialPadding padding;
  bool operator==(const Window&) const = default;
};

// TensorFlow's SAME padding of one axis. The output size is ceil(size / stride). If the padding is
// an odd number, the extra row or column comes after the input.
struct AxisPadding {
  int before = 0;
  int after = 0;
  int output_size = 0;
};
AxisPadding SamePadding(int size, int kernel, int stride);

// Returns a window with SAME padding for an input of this shape.
Window SameWindow(const FeatureShape& input, int kernel, int stride);

// Returns a window with `kernel` - 1 rows and columns of padding in all, half of them before the
// input, whatever its size.
Window FixedWindow(int kernel, int stride);

// Operators name their variables by the index in NetworkSpec::variables. A dense layer is a
// convolution with a 1x1 window on a single pixel, as in slim's classifiers.
namespace op {

constexpr int kNoVariable = -1;

// weights [kernel, kernel, in, out], biases [out].
struct Convolution {
  Window window;
  int weights = kNoVariable;
  int biases = kNoVariable;
  int channels = 1;  // of the output
  bool operator==(const Convolution&) const = default;
};

// Each channel has a kernel of its own. weights [kernel, kernel, channels, 1]. They may also have
// the shape [kernel, kernel, channels / n, n], that of TensorFlow's depthwise convolution with a
// channel multiplier n; it has the same order in memory and reads channels that are repeated n
// times.
struct DepthwiseConvolution {
  Window window;
  int weights = kNoVariable;
  bool operator==(const DepthwiseConvolution&) const = default;
};

// y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the mean and variance over all
// axes but the channels. All variables are [channels].
struct BatchNorm {
  float decay = 0.997f;  // of the moving statistics
  float epsilon = 0.001f;
  // Training uses the moving statistics too, and does not update them.
  bool frozen = false;
  // Inference removes the initial value from the moving statistics.
  bool bias_corrected = false;
  int gamma = kNoVariable;  // kNoVariable: 1
  int beta = kNoVariable;   // kNoVariable: 0
  int moving_mean = kNoVariable;
  int moving_variance = kNoVariable;
  bool operator==(const BatchNorm&) const = default;
};

struct Activation {
  ActivationFunction function = ActivationFunction::kRelu;
  float negative_slope = 0.2f;  // kLeakyRelu only
  bool operator==(const Activation&) const = default;
};

// The sum of two inputs of the same shape.
struct Add {
  bool operator==(const Add&) const = default;
};

// The first input times the second one, [1, 1, channels]: a factor for each channel.
struct Multiply {
  bool operator==(const Multiply&) const = default;
};

// The channels of the first input, then those of the second, and so on. Inputs differ in nothing
// but the number of channels.
struct Concat {
  bool operator==(const Concat&) const = default;
};

// The largest element of each window, and the mean of its elements. Padding takes no part.
struct MaxPool {
  Window window;
  bool operator==(const MaxPool&) const = default;
};
struct AveragePool {
  Window window;
  bool operator==(const AveragePool&) const = default;
};

// Repeats each pixel `factor` times in both directions.
struct Upsample {
  int factor = 2;
  bool operator==(const Upsample&) const = default;
};

// Repeats each channel `times` times: channel c becomes c * times to c * times + times - 1.
struct RepeatChannels {
  int times = 2;
  bool operator==(const RepeatChannels&) const = default;
};

// The mean over height and width: [1, 1, channels].
struct GlobalAveragePool {
  bool operator==(const GlobalAveragePool&) const = default;
};

// In training each element is kept with this probability and divided by it, or becomes 0.
struct Dropout {
  float keep_probability = 1.0f;
  bool operator==(const Dropout&) const = default;
};

}  // namespace op

using Operator =
    std::variant<op::Convolution, op::DepthwiseConvolution, op::BatchNorm, op::Activation, op::Add,
                 op::Multiply, op::Concat, op::MaxPool, op::AveragePool, op::GlobalAveragePool,
                 op::Upsample, op::RepeatChannels, op::Dropout>;

// Returns "convolution", "batch norm", ...: what messages call the operator.
std::string OperatorName(const Operator& op);

// Returns the shape of what the operator computes from inputs of these shapes. INVALID_ARGUMENT:
// it cannot have such inputs; the message says what is wrong ("adds values of 8x8x16 and 4x4x16").
absl::StatusOr<FeatureShape> OutputShape(const Operator& op, absl::Span<const FeatureShape> inputs);

// Returns the indices of the operator's variables, in the order in which networks declare them.
std::vector<int> VariablesOf(const Operator& op);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_OPERATORS_H_
