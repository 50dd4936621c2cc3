#include "tests/kernels/cpu/tiny_network.h"

#include <cmath>

#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {

namespace {
constexpr int kClasses = 6;
constexpr uint64_t kSeed = 7;
constexpr uint64_t kSalt = 0x1234;
}  // namespace

template <typename T>
TinyNetwork<T>::TinyNetwork(const TinySpec& spec) : spec_(spec) {
  const FusedActivation activation = spec.activation;
  const ConvolutionShape stem{spec.image, 4, spec.stem_kernel, spec.stem_stride, spec.stem_padding};
  AddLayer("stem", stem, false, activation);
  AddLayer("expand", SameConvolution(stem.out(), 9, 1, 1), false, activation);
  const ConvolutionShape depthwise =
      SameConvolution(layers_[1]->shape.out(), 9, 3, spec.block_stride);
  AddLayer("depthwise", depthwise, true, activation);
  AddLayer("project", SameConvolution(depthwise.out(), 4, 1, 1), false, FusedActivation::kNone);
  AddLayer("head", SameConvolution(layers_[3]->shape.out(), 10, 1, 1), false, activation);
  if (spec.skip) {
    layers_[0]->applied.resize(stem.out().size());
    layers_[0]->output.applied = layers_[0]->applied.data();
    layers_[3]->output.skip = layers_[0]->applied.data();
  }
  const int64_t n = spec.image.n;
  classifier_ = SameConvolution({n, 1, 1, 10}, kClasses, 1, 1);
  classifier_weights_ = AddParameter("classifier/weights", classifier_.dense_weights(), 0.5, 0);
  classifier_bias_ = AddParameter("classifier/bias", kClasses, 0.5, 0);
  image_ = RandomValues<T>(spec.image.size(), 999);
  pooled_.resize(n * 10);
  dropped_.resize(n * 10);
  dpooled_.resize(n * 10);
  logits_.resize(n * kClasses);
  dlogits_.resize(n * kClasses);
  for (int64_t i = 0; i < n; ++i) labels_.push_back(static_cast<int32_t>((i * 2 + 1) % kClasses));
}

template <typename T>
typename TinyNetwork<T>::Parameter* TinyNetwork<T>::AddParameter(const std::string& name,
                                                                 int64_t size, double scale,
                                                                 double offset) {
  parameters_.push_back(std::make_unique<Parameter>());
  Parameter* parameter = parameters_.back().get();
  parameter->name = name;
  parameter->value = RandomValues<T>(size, parameters_.size(), scale, offset);
  parameter->gradient.resize(size);
  return parameter;
}

template <typename T>
void TinyNetwork<T>::AddLayer(const std::string& name, const ConvolutionShape& shape,
                              bool depthwise, FusedActivation activation) {
  auto layer = std::make_unique<Layer>();
  layer->shape = shape;
  layer->depthwise = depthwise;
  const int64_t channels = shape.out_channels;
  layer->weights = AddParameter(
      name + "/weights", depthwise ? shape.depthwise_weights() : shape.dense_weights(), 0.5, 0);
  layer->gamma = AddParameter(name + "/gamma", channels, 0.3, 1.2);
  layer->beta = AddParameter(name + "/beta", channels, 0.5, 0.5);
  layer->y.resize(shape.out().size());
  layer->dz.resize(shape.out().size());
  layer->mean = RandomValues<T>(channels, 500, 0.1);
  layer->variance.assign(channels, T(0.8));
  layer->norm = {layer->gamma->value.data(),
                 layer->beta->value.data(),
                 layer->mean.data(),
                 layer->variance.data(),
                 1e-3,
                 spec_.statistics};
  layer->output = {shape.out(), layer->y.data(), &layer->norm, activation, nullptr, nullptr};
  layers_.push_back(std::move(layer));
}

template <typename T>
void TinyNetwork<T>::RunLayer(Layer& layer, const Lazy<T>& x, Operators<T>* operators) {
  StatisticsOut<T> statistics;
  if (spec_.statistics == Statistics::kBatch)
    statistics = {layer.mean.data(), layer.variance.data()};
  if (layer.depthwise) {
    GuardedWorkspace workspace(operators->DepthwiseWorkspace(layer.shape));
    operators->DepthwiseConvolution(layer.shape, x, layer.weights->value.data(), layer.y.data(),
                                    statistics, workspace.view());
  } else {
    GuardedWorkspace workspace(operators->ConvolutionWorkspace(layer.shape));
    operators->Convolution(layer.shape, x, layer.weights->value.data(), nullptr, layer.y.data(),
                           statistics, workspace.view());
  }
  if (!layer.applied.empty()) operators->Apply(layer.output, layer.applied.data());
}

template <typename T>
ClassificationResult TinyNetwork<T>::Forward(Operators<T>* operators) {
  Lazy<T> x{spec_.image, image_.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  for (const auto& layer : layers_) {
    RunLayer(*layer, x, operators);
    x = layer->output;
  }
  operators->GlobalAveragePool(x, pooled_.data());
  operators->Dropout(pooled_.size(), pooled_.data(), spec_.dropout, &kSeed, kSalt, dropped_.data());
  const Lazy<T> features{classifier_.in,         dropped_.data(), nullptr,
                         FusedActivation::kNone, nullptr,         nullptr};
  GuardedWorkspace workspace(operators->ConvolutionWorkspace(classifier_));
  operators->Convolution(classifier_, features, classifier_weights_->value.data(),
                         classifier_bias_->value.data(), logits_.data(), {}, workspace.view());
  ClassificationResult result;
  operators->SoftmaxCrossEntropy(spec_.image.n, kClasses, logits_.data(), labels_.data(),
                                 spec_.smoothing, dlogits_.data(), &result);
  return result;
}

template <typename T>
InputGradient<T> TinyNetwork<T>::Into(Layer& layer, const T* add) {
  return {layer.dz.data(), add, layer.beta->gradient.data(), layer.gamma->gradient.data()};
}

template <typename T>
void TinyNetwork<T>::BackLayer(Layer& layer, const Lazy<T>& x, const InputGradient<T>& dx,
                               Operators<T>* operators) {
  const OutputGradient<T> dy{layer.dz.data(), layer.y.data(), &layer.norm,
                             layer.beta->gradient.data(), layer.gamma->gradient.data()};
  if (layer.depthwise) {
    GuardedWorkspace workspace(operators->DepthwiseWorkspace(layer.shape));
    operators->DepthwiseConvolutionBackward(layer.shape, x, layer.weights->value.data(), dy,
                                            layer.weights->gradient.data(), dx, workspace.view());
  } else {
    GuardedWorkspace workspace(operators->ConvolutionWorkspace(layer.shape));
    operators->ConvolutionBackward(layer.shape, x, layer.weights->value.data(), dy,
                                   layer.weights->gradient.data(), nullptr, dx, workspace.view());
  }
}

template <typename T>
void TinyNetwork<T>::Backward(Operators<T>* operators) {
  const Lazy<T> features{classifier_.in,         dropped_.data(), nullptr,
                         FusedActivation::kNone, nullptr,         nullptr};
  {
    GuardedWorkspace workspace(operators->ConvolutionWorkspace(classifier_));
    operators->ConvolutionBackward(classifier_, features, classifier_weights_->value.data(),
                                   {dlogits_.data(), nullptr, nullptr, nullptr, nullptr},
                                   classifier_weights_->gradient.data(),
                                   classifier_bias_->gradient.data(),
                                   {dpooled_.data(), nullptr, nullptr, nullptr}, workspace.view());
  }
  operators->Dropout(dpooled_.size(), dpooled_.data(), spec_.dropout, &kSeed, kSalt,
                     dpooled_.data());
  Layer& last = *layers_.back();
  GuardedWorkspace workspace(operators->PoolWorkspace(last.shape.out()));
  operators->GlobalAveragePoolBackward(last.output, dpooled_.data(), Into(last, nullptr),
                                       workspace.view());
  for (size_t i = layers_.size(); i-- > 1;) {
    const T* add = i == 1 && spec_.skip ? layers_[3]->dz.data() : nullptr;
    BackLayer(*layers_[i], layers_[i - 1]->output, Into(*layers_[i - 1], add), operators);
  }
  const Lazy<T> image{spec_.image, image_.data(), nullptr, FusedActivation::kNone,
                      nullptr,     nullptr};
  BackLayer(*layers_[0], image, {}, operators);
}

template class TinyNetwork<float>;
template class TinyNetwork<double>;

}  // namespace pushpull
