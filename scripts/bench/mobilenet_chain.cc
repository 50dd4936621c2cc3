#include "scripts/bench/mobilenet_chain.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"

namespace pushpull {

namespace {

std::vector<float> Normal(int64_t count, uint64_t stream, double deviation) {
  CounterRandom random(1, stream);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(deviation * random.NextNormal());
  return values;
}

}  // namespace

MobilenetChain::MobilenetChain(int64_t batch, int64_t size, int64_t classes,
                               const Operators<float>& operators)
    : image_(Normal(batch * size * size * 3, 0, 1)), labels_(batch) {
  AddLayer(SameConvolution({batch, size, size, 3}, 32, 3, 2), false, FusedActivation::kRelu6, true);
  struct Stage {
    int expansion, channels, count, stride;
  };
  for (const Stage& stage :
       {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
        Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
    for (int i = 0; i < stage.count; ++i)
      AddBlock(stage.expansion, stage.channels, i == 0 ? stage.stride : 1);
  }
  AddLayer(SameConvolution(OutputShape(), 1280, 1, 1), false, FusedActivation::kRelu6, true);
  const Shape pooled{batch, 1, 1, 1280};
  int64_t bytes = operators.PoolWorkspace(OutputShape());
  AddLayer(SameConvolution(pooled, classes, 1, 1), false, FusedActivation::kNone, false);
  pooled_.resize(pooled.size());
  dpooled_.resize(pooled.size());
  for (int64_t i = 0; i < batch; ++i) labels_[i] = static_cast<int32_t>(i % classes);
  for (const auto& layer : layers_) {
    bytes = std::max(bytes, layer->depthwise ? operators.DepthwiseWorkspace(layer->shape)
                                             : operators.ConvolutionWorkspace(layer->shape));
  }
  workspace_.resize(bytes / sizeof(float) + 32);
  const auto address = reinterpret_cast<uintptr_t>(workspace_.data());
  view_ = {workspace_.data() + (64 - address % 64) % 64 / sizeof(float), bytes};
}

void MobilenetChain::AddLayer(const ConvolutionShape& shape, bool depthwise,
                              FusedActivation activation, bool normalized) {
  auto layer = std::make_unique<Layer>();
  layer->shape = shape;
  layer->depthwise = depthwise;
  layer->normalized = normalized;
  const int64_t channels = shape.out_channels;
  const int64_t fan_in = int64_t{shape.kernel} * shape.kernel * (depthwise ? 1 : shape.in.c);
  layer->weights = Normal(depthwise ? shape.depthwise_weights() : shape.dense_weights(),
                          layers_.size() + 1, 1 / std::sqrt(static_cast<double>(fan_in)));
  layer->dweights.resize(layer->weights.size());
  layer->y.resize(shape.out().size());
  layer->dz.resize(shape.out().size());
  for (auto* vector :
       {&layer->beta, &layer->mean, &layer->variance, &layer->dgamma, &layer->dbeta}) {
    vector->resize(channels);
  }
  layer->gamma.assign(channels, 1.0f);
  layer->norm = {
      layer->gamma.data(), layer->beta.data(), layer->mean.data(), layer->variance.data(), 1e-3,
      Statistics::kBatch};
  layer->output = {shape.out(), layer->y.data(), normalized ? &layer->norm : nullptr,
                   activation,  nullptr,         nullptr};
  layers_.push_back(std::move(layer));
}

void MobilenetChain::AddBlock(int64_t expansion, int64_t out, int stride) {
  const Shape in = OutputShape();
  const int source = static_cast<int>(layers_.size()) - 1;
  const bool skip = stride == 1 && in.c == out;
  if (expansion > 1) {
    AddLayer(SameConvolution(in, in.c * expansion, 1, 1), false, FusedActivation::kRelu6, true);
  }
  const int first = source + 1;
  AddLayer(SameConvolution(OutputShape(), OutputShape().c, 3, stride), true,
           FusedActivation::kRelu6, true);
  AddLayer(SameConvolution(OutputShape(), out, 1, 1), false, FusedActivation::kNone, true);
  if (!skip) return;
  Layer& input = *layers_[source];
  input.applied.resize(in.size());
  input.output.applied = input.applied.data();
  Layer& last = *layers_.back();
  last.skip_from = source;
  last.output.skip = input.applied.data();
  layers_[first]->add_from = static_cast<int>(layers_.size()) - 1;
}

Lazy<float> MobilenetChain::InputOf(size_t i) const {
  if (i == 0)
    return {layers_[0]->shape.in, image_.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  if (i + 1 == layers_.size()) {
    return {layers_[i]->shape.in,   pooled_.data(), nullptr,
            FusedActivation::kNone, nullptr,        nullptr};
  }
  return layers_[i - 1]->output;
}

void MobilenetChain::Step(Operators<float>* operators) {
  Forward(operators);
  Backward(operators);
}

void MobilenetChain::Forward(Operators<float>* operators) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *layers_[i];
    if (i + 1 == layers_.size())
      operators->GlobalAveragePool(layers_[i - 1]->output, pooled_.data());
    const Lazy<float> x = InputOf(i);
    StatisticsOut<float> statistics;
    if (layer.normalized) statistics = {layer.mean.data(), layer.variance.data()};
    if (layer.depthwise) {
      operators->DepthwiseConvolution(layer.shape, x, layer.weights.data(), layer.y.data(),
                                      statistics, view_);
    } else {
      operators->Convolution(layer.shape, x, layer.weights.data(),
                             layer.normalized ? nullptr : layer.beta.data(), layer.y.data(),
                             statistics, view_);
    }
    if (!layer.applied.empty()) operators->Apply(layer.output, layer.applied.data());
  }
}

void MobilenetChain::Backward(Operators<float>* operators) {
  const Layer& classifier = *layers_.back();
  ClassificationResult result;
  operators->SoftmaxCrossEntropy(classifier.shape.in.n, classifier.shape.out_channels,
                                 classifier.y.data(), labels_.data(), 0.1,
                                 layers_.back()->dz.data(), &result);
  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = *layers_[i];
    OutputGradient<float> dy{layer.dz.data(), nullptr, nullptr, nullptr, nullptr};
    if (layer.normalized) {
      dy = {layer.dz.data(), layer.y.data(), &layer.norm, layer.dbeta.data(), layer.dgamma.data()};
    }
    InputGradient<float> dx;
    if (i + 1 == layers_.size()) {
      dx.dz = dpooled_.data();
    } else if (i > 0) {
      Layer& before = *layers_[i - 1];
      dx = {before.dz.data(), layer.add_from >= 0 ? layers_[layer.add_from]->dz.data() : nullptr,
            before.dbeta.data(), before.dgamma.data()};
    }
    const Lazy<float> x = InputOf(i);
    if (layer.depthwise) {
      operators->DepthwiseConvolutionBackward(layer.shape, x, layer.weights.data(), dy,
                                              layer.dweights.data(), dx, view_);
    } else {
      operators->ConvolutionBackward(layer.shape, x, layer.weights.data(), dy,
                                     layer.dweights.data(),
                                     layer.normalized ? nullptr : layer.beta.data(), dx, view_);
    }
    if (i + 1 == layers_.size()) {
      Layer& last = *layers_[i - 1];
      operators->GlobalAveragePoolBackward(
          last.output, dpooled_.data(),
          {last.dz.data(), nullptr, last.dbeta.data(), last.dgamma.data()}, view_);
    }
  }
}

}  // namespace pushpull
