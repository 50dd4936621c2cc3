// Tested by tests/worker/export/onnx_model_test.cc.
#include "worker/export/folded_layer.h"

#include <cmath>
#include <variant>

#include "glog/logging.h"

namespace pushpull {

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

}  // namespace pushpull
