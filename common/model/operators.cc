// Tested by tests/common/model/network_spec_test.cc.
#include "common/model/operators.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// The number of positions of a window on an axis; 0 or less if it does not fit.
int Positions(int size, int kernel, int stride, int padding) {
  const int slack = size + padding - kernel;
  return slack < 0 ? 0 : slack / stride + 1;
}

absl::StatusOr<FeatureShape> SlideWindow(const Window& window, const FeatureShape& input,
                                         int channels) {
  if (window.kernel < 1 || window.stride < 1 || channels < 1) {
    return absl::InvalidArgumentError(absl::StrCat("has kernel ", window.kernel, ", stride ",
                                                   window.stride, " and ", channels,
                                                   " channels; expected at least 1 of each"));
  }
  const SpatialPadding& padding = window.padding;
  // Every window must contain an element of the input.
  if (std::max({padding.top, padding.bottom, padding.left, padding.right}) >= window.kernel) {
    return absl::InvalidArgumentError(absl::StrCat("has padding of ", window.kernel,
                                                   " or more around a window of ", window.kernel,
                                                   "x", window.kernel));
  }
  const FeatureShape output = {
      Positions(input.height, window.kernel, window.stride, padding.top + padding.bottom),
      Positions(input.width, window.kernel, window.stride, padding.left + padding.right), channels};
  if (output.height < 1 || output.width < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a window of ", window.kernel, "x", window.kernel,
                     ", which does not fit into an input of ", ToString(input)));
  }
  return output;
}

struct NameOf {
  std::string operator()(const op::Convolution&) const { return "convolution"; }
  std::string operator()(const op::DepthwiseConvolution&) const { return "depthwise convolution"; }
  std::string operator()(const op::BatchNorm&) const { return "batch norm"; }
  std::string operator()(const op::Activation&) const { return "activation"; }
  std::string operator()(const op::Add&) const { return "add"; }
  std::string operator()(const op::Multiply&) const { return "multiply"; }
  std::string operator()(const op::Concat&) const { return "concat"; }
  std::string operator()(const op::MaxPool&) const { return "max pool"; }
  std::string operator()(const op::AveragePool&) const { return "average pool"; }
  std::string operator()(const op::GlobalAveragePool&) const { return "global average pool"; }
  std::string operator()(const op::Upsample&) const { return "upsample"; }
  std::string operator()(const op::RepeatChannels&) const { return "repeat channels"; }
  std::string operator()(const op::Dropout&) const { return "dropout"; }
};

// The number of inputs that an operator takes: `least`, or any number from there on.
struct Arity {
  size_t least = 1;
  bool or_more = false;
};

struct ArityOf {
  Arity operator()(const op::Convolution&) const { return {1}; }
  Arity operator()(const op::DepthwiseConvolution&) const { return {1}; }
  Arity operator()(const op::BatchNorm&) const { return {1}; }
  Arity operator()(const op::Activation&) const { return {1}; }
  Arity operator()(const op::Add&) const { return {2}; }
  Arity operator()(const op::Multiply&) const { return {2}; }
  Arity operator()(const op::Concat&) const { return {2, /*or_more=*/true}; }
  Arity operator()(const op::MaxPool&) const { return {1}; }
  Arity operator()(const op::AveragePool&) const { return {1}; }
  Arity operator()(const op::GlobalAveragePool&) const { return {1}; }
  Arity operator()(const op::Upsample&) const { return {1}; }
  Arity operator()(const op::RepeatChannels&) const { return {1}; }
  Arity operator()(const op::Dropout&) const { return {1}; }
};

struct ShapeOf {
  using Shapes = absl::Span<const FeatureShape>;
  using Result = absl::StatusOr<FeatureShape>;

  Result operator()(const op::Convolution& convolution) const {
    return SlideWindow(convolution.window, inputs[0], convolution.channels);
  }
  Result operator()(const op::DepthwiseConvolution& convolution) const {
    return SlideWindow(convolution.window, inputs[0], inputs[0].channels);
  }
  Result operator()(const op::BatchNorm&) const { return inputs[0]; }
  Result operator()(const op::Activation&) const { return inputs[0]; }
  Result operator()(const op::Dropout& dropout) const {
    if (dropout.keep_probability > 0.0f && dropout.keep_probability <= 1.0f) return inputs[0];
    return absl::InvalidArgumentError(
        absl::StrCat("keeps with probability ", dropout.keep_probability, ", expected (0, 1]"));
  }
  Result operator()(const op::Add&) const {
    if (inputs[0] == inputs[1]) return inputs[0];
    return absl::InvalidArgumentError(
        absl::StrCat("adds values of ", ToString(inputs[0]), " and ", ToString(inputs[1])));
  }
  Result operator()(const op::Multiply&) const {
    if (inputs[1] == FeatureShape{1, 1, inputs[0].channels}) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat("multiplies values of ", ToString(inputs[0]),
                                                   " by factors of ", ToString(inputs[1])));
  }
  Result operator()(const op::Concat&) const {
    FeatureShape output = inputs[0];
    for (const FeatureShape& input : inputs.subspan(1)) {
      if (input.height != output.height || input.width != output.width) {
        return absl::InvalidArgumentError(
            absl::StrCat("joins values of ", ToString(inputs[0]), " and ", ToString(input)));
      }
      output.channels += input.channels;
    }
    return output;
  }
  Result operator()(const op::MaxPool& pool) const {
    return SlideWindow(pool.window, inputs[0], inputs[0].channels);
  }
  Result operator()(const op::AveragePool& pool) const {
    return SlideWindow(pool.window, inputs[0], inputs[0].channels);
  }
  Result operator()(const op::GlobalAveragePool&) const {
    return FeatureShape{1, 1, inputs[0].channels};
  }
  Result operator()(const op::Upsample& upsample) const {
    if (upsample.factor < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("has the factor ", upsample.factor, ", expected at least 1"));
    }
    return FeatureShape{inputs[0].height * upsample.factor, inputs[0].width * upsample.factor,
                        inputs[0].channels};
  }
  Result operator()(const op::RepeatChannels& repeat) const {
    if (repeat.times < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("repeats ", repeat.times, " times, expected at least 1"));
    }
    FeatureShape output = inputs[0];
    output.channels *= repeat.times;
    return output;
  }

  Shapes inputs;
};

struct ListVariables {
  std::vector<int> operator()(const op::Convolution& convolution) const {
    return {convolution.weights, convolution.biases};
  }
  std::vector<int> operator()(const op::DepthwiseConvolution& convolution) const {
    return {convolution.weights};
  }
  std::vector<int> operator()(const op::BatchNorm& norm) const {
    return {norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance};
  }
  std::vector<int> operator()(const op::Activation&) const { return {}; }
  std::vector<int> operator()(const op::Add&) const { return {}; }
  std::vector<int> operator()(const op::Multiply&) const { return {}; }
  std::vector<int> operator()(const op::Concat&) const { return {}; }
  std::vector<int> operator()(const op::MaxPool&) const { return {}; }
  std::vector<int> operator()(const op::AveragePool&) const { return {}; }
  std::vector<int> operator()(const op::GlobalAveragePool&) const { return {}; }
  std::vector<int> operator()(const op::Upsample&) const { return {}; }
  std::vector<int> operator()(const op::RepeatChannels&) const { return {}; }
  std::vector<int> operator()(const op::Dropout&) const { return {}; }
};

}  // namespace

std::string ActivationName(ActivationFunction function) {
  switch (function) {
    case ActivationFunction::kNone:
      return "Identity";
    case ActivationFunction::kRelu:
      return "Relu";
    case ActivationFunction::kRelu6:
      return "Relu6";
    case ActivationFunction::kLeakyRelu:
      return "LeakyRelu";
    case ActivationFunction::kHardSigmoid:
      return "HardSigmoid";
    case ActivationFunction::kHardSwish:
      return "HardSwish";
    case ActivationFunction::kSigmoid:
      return "Sigmoid";
    case ActivationFunction::kSwish:
      return "Swish";
  }
  return "";
}

std::vector<ActivationFunction> AllActivationFunctions() {
  std::vector<ActivationFunction> functions;
  for (int i = 0; !ActivationName(static_cast<ActivationFunction>(i)).empty(); ++i) {
    functions.push_back(static_cast<ActivationFunction>(i));
  }
  return functions;
}

std::string ToString(const FeatureShape& shape) {
  return absl::StrCat(shape.height, "x", shape.width, "x", shape.channels);
}

AxisPadding SamePadding(int size, int kernel, int stride) {
  AxisPadding padding;
  padding.output_size = (size + stride - 1) / stride;
  const int total = std::max((padding.output_size - 1) * stride + kernel - size, 0);
  padding.before = total / 2;
  padding.after = total - padding.before;
  return padding;
}

Window SameWindow(const FeatureShape& input, int kernel, int stride) {
  const AxisPadding rows = SamePadding(input.height, kernel, stride);
  const AxisPadding columns = SamePadding(input.width, kernel, stride);
  return {kernel, stride, {rows.before, rows.after, columns.before, columns.after}};
}

Window FixedWindow(int kernel, int stride) {
  const int before = (kernel - 1) / 2, after = kernel - 1 - before;
  return {kernel, stride, {before, after, before, after}};
}

std::string OperatorName(const Operator& op) { return std::visit(NameOf(), op); }

absl::StatusOr<FeatureShape> OutputShape(const Operator& op,
                                         absl::Span<const FeatureShape> inputs) {
  const Arity arity = std::visit(ArityOf(), op);
  if (inputs.size() < arity.least || (inputs.size() > arity.least && !arity.or_more)) {
    return absl::InvalidArgumentError(absl::StrCat("has ", inputs.size(), " inputs, expected ",
                                                   arity.or_more ? "at least " : "", arity.least));
  }
  return std::visit(ShapeOf{inputs}, op);
}

std::vector<int> VariablesOf(const Operator& op) {
  std::vector<int> variables = std::visit(ListVariables(), op);
  std::erase(variables, op::kNoVariable);
  return variables;
}

}  // namespace pushpull
