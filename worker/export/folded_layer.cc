// Tested by tests/worker/export/onnx_model_test.cc.
#include "worker/export/folded_layer.h"

#include <cmath>

#include "glog/logging.h"

namespace pushpull {

FoldedLayer FoldLayer(const LayerSpec& layer, const InferenceModel& model) {
  const absl::Span<const float> weights = ValuesOf(model, WeightsName(layer));
  const int64_t channels = layer.output_shape.channels;
  std::vector<double> scale(channels, 1.0);
  std::vector<double> shift(channels, 0.0);
  const auto value = [&](const std::string& name, int64_t channel, double absent) {
    return name.empty() ? absent : static_cast<double>(ValuesOf(model, name)[channel]);
  };
  for (int64_t c = 0; c < channels; ++c) {
    shift[c] = value(BiasesName(layer), c, 0.0);
    if (!layer.batch_norm.has_value()) continue;
    const double variance = value(MovingVarianceName(layer), c, 1.0);
    scale[c] = value(GammaName(layer), c, 1.0) /
               std::sqrt(variance + static_cast<double>(layer.batch_norm->epsilon));
    shift[c] = (shift[c] - value(MovingMeanName(layer), c, 0.0)) * scale[c] +
               value(BetaName(layer), c, 0.0);
  }

  FoldedLayer folded;
  folded.biases.assign(shift.begin(), shift.end());
  // The weights are [k, k, in, out], or [k, k, channels, 1] for a depthwise layer. In both the
  // output channel varies fastest.
  const int64_t kernel = layer.kernel;
  const int64_t inputs = layer.kind == LayerKind::kDepthwise ? 1 : layer.input_shape.channels;
  folded.shape = {channels, inputs, kernel, kernel};
  CHECK_EQ(static_cast<int64_t>(weights.size()), channels * inputs * kernel * kernel)
      << layer.scope;
  folded.weights.resize(weights.size());
  const int64_t area = kernel * kernel;
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
