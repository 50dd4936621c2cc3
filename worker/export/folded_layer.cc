// Tested by tests/worker/export/onnx_execution_test.cc.
// Tested by tests/worker/export/onnx_model_test.cc.
// Tested by tests/worker/export/onnx_random_graph_test.cc.
#include "worker/export/folded_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "glog/logging.h"

namespace pushpull {
namespace {

// Along one axis: the rows or columns [begin, end) of the kernel, and the padding that they need.
struct Taps {
  int begin = 0;
  int end = 0;
  int pad_before = 0;
  int pad_after = 0;
};

// Returns the part of the kernel that reads the input's `in_size` pixels at some position.
Taps FindUsedTaps(const Window& window, int pad_before, int in_size, int out_size) {
  const auto is_used = [&](int tap) {
    for (int out = 0; out < out_size; ++out) {
      const int in = out * window.stride - pad_before + tap;
      if (in >= 0 && in < in_size) return true;
    }
    return false;
  };
  Taps taps = {0, window.kernel, 0, 0};
  while (taps.begin < taps.end && !is_used(taps.begin)) ++taps.begin;
  while (taps.end > taps.begin && !is_used(taps.end - 1)) --taps.end;
  const int size = taps.end - taps.begin;
  taps.pad_before = pad_before - taps.begin;
  taps.pad_after = std::max(0, (out_size - 1) * window.stride + size - taps.pad_before - in_size);
  CHECK(size > 0 && taps.pad_before >= 0);
  CHECK_EQ((in_size + taps.pad_before + taps.pad_after - size) / window.stride + 1, out_size);
  return taps;
}

}  // namespace

FoldedLayer FoldLayer(const Node& convolution, const op::BatchNorm* norm,
                      const InferenceModel& model) {
  const auto* const dense = std::get_if<op::Convolution>(&convolution.op);
  const auto* const depthwise = std::get_if<op::DepthwiseConvolution>(&convolution.op);
  CHECK(dense != nullptr || depthwise != nullptr) << convolution.name;
  const int variable = dense != nullptr ? dense->weights : depthwise->weights;
  const int64_t channels = convolution.shape.channels;
  std::vector<double> scale(channels, 1.0);
  std::vector<double> shift(channels, 0.0);
  const auto value = [&](int index, int64_t channel, double absent) {
    return index == op::kNoVariable ? absent : static_cast<double>(ValuesOf(model, index)[channel]);
  };
  for (int64_t c = 0; c < channels; ++c) {
    shift[c] = value(dense != nullptr ? dense->biases : op::kNoVariable, c, 0.0);
    if (norm == nullptr) continue;
    const double variance = value(norm->moving_variance, c, 1.0);
    scale[c] =
        value(norm->gamma, c, 1.0) / std::sqrt(variance + static_cast<double>(norm->epsilon));
    shift[c] = (shift[c] - value(norm->moving_mean, c, 0.0)) * scale[c] + value(norm->beta, c, 0.0);
  }

  FoldedLayer folded;
  folded.biases.assign(shift.begin(), shift.end());
  // The weights are [k, k, in, out], or for a depthwise layer [k, k, c, n], where c * n is the
  // number of channels. In both the output channel varies fastest.
  const absl::Span<const float> weights = ValuesOf(model, variable);
  const std::vector<int64_t>& shape = model.network.variables[variable].shape;
  const int64_t inputs = depthwise != nullptr ? 1 : shape[2];
  const int64_t area = shape[0] * shape[1];
  folded.shape = {channels, inputs, shape[0], shape[1]};
  folded.weights.resize(weights.size());
  for (int64_t out = 0; out < channels; ++out) {
    for (int64_t in = 0; in < inputs; ++in) {
      for (int64_t at = 0; at < area; ++at) {
        folded.weights[(out * inputs + in) * area + at] =
            static_cast<float>(weights[(at * inputs + in) * channels + out] * scale[out]);
      }
    }
  }
  return folded;
}

TrimmedWindow TrimKernel(const Window& window, const FeatureShape& input,
                         const FeatureShape& output, FoldedLayer* folded) {
  const Taps rows = FindUsedTaps(window, window.padding.top, input.height, output.height);
  const Taps columns = FindUsedTaps(window, window.padding.left, input.width, output.width);
  std::vector<float> kept;
  const size_t area = static_cast<size_t>(window.kernel) * window.kernel;
  for (size_t plane = 0; plane < folded->weights.size(); plane += area) {
    for (int y = rows.begin; y < rows.end; ++y) {
      for (int x = columns.begin; x < columns.end; ++x) {
        kept.push_back(folded->weights[plane + static_cast<size_t>(y) * window.kernel + x]);
      }
    }
  }
  TrimmedWindow trimmed;
  trimmed.height = rows.end - rows.begin;
  trimmed.width = columns.end - columns.begin;
  trimmed.padding.top = rows.pad_before;
  trimmed.padding.bottom = rows.pad_after;
  trimmed.padding.left = columns.pad_before;
  trimmed.padding.right = columns.pad_after;
  folded->weights = std::move(kept);
  folded->shape[2] = trimmed.height;
  folded->shape[3] = trimmed.width;
  return trimmed;
}

}  // namespace pushpull
