// The forward and backward pass of Network, with one fused operator per layer.
// Tested by tests/worker/model/network_test.cc.
// Tested by tests/worker/model/network_gradient_test.cc.
#include <algorithm>
#include <cmath>

#include "glog/logging.h"

#include "common/base/random.h"
#include "worker/model/gather_layers.h"
#include "worker/model/network.h"

namespace pushpull {
namespace {

// Views every pixel as a separate sample. Global average pooling is then the identity: forward, it
// writes a lazy value to memory; backward, it applies only the derivatives of batch norm and
// activation.
template <typename T>
Lazy<T> PixelByPixel(Lazy<T> value) {
  value.shape = {value.shape.rows(), 1, 1, value.shape.c};
  return value;
}

// Makes each layer use different random numbers.
uint64_t DropoutSalt(const FusedLayer& layer) { return StableHash(layer.name); }

}  // namespace

template <typename T>
Shape Network<T>::ShapeOf(const FeatureShape& shape) const {
  return {pass_.batch.samples, shape.height, shape.width, shape.channels};
}

template <typename T>
bool Network<T>::UsesBatchStatistics(int l) const {
  return pass_.training() && !fused(l).batch_norm->frozen;
}

template <typename T>
void Network<T>::Begin(const Pass& pass) {
  CHECK(pass.batch.samples >= 1 && pass.batch.samples <= options_.max_batch) << pass.batch.samples;
  pass_ = pass;
  for (int l = 0; l < num_layers(); ++l) {
    if (fused(l).batch_norm.has_value()) BindBatchNorm(l);
  }
}

template <typename T>
void Network<T>::BindBatchNorm(int l) {
  const LayerVariables& variables = plan_.variables[l];
  const bool batch = UsesBatchStatistics(l);
  const Parameter* const ones = static_cast<const Parameter*>(constants_->data());
  const Parameter* const zeros = ones + plan_.constants;
  BatchNorm<Parameter>& norm = batch_norms_[l];
  norm.gamma = variables.gamma.present() ? pass_.variables + variables.gamma.offset : ones;
  norm.beta = variables.beta.present() ? pass_.variables + variables.beta.offset : zeros;
  norm.mean = batch ? Sums(buffers(l).mean) : pass_.variables + variables.moving_mean.offset;
  norm.variance =
      batch ? Sums(buffers(l).variance) : pass_.variables + variables.moving_variance.offset;
  norm.epsilon = fused(l).batch_norm->epsilon;
  norm.statistics = batch ? Statistics::kBatch : Statistics::kFrozen;
}

template <typename T>
void Network<T>::CorrectMovingStatistics(int64_t num_updates) {
  for (int l = 0; l < num_layers(); ++l) {
    const auto& spec = fused(l).batch_norm;
    if (!spec.has_value() || !spec->bias_corrected || spec->frozen || num_updates < 1) continue;
    // Moving statistics start at mean 0 and variance 1, which still have the weight decay^updates.
    const double left = std::pow(static_cast<double>(spec->decay), num_updates);
    if (left >= 1.0) continue;
    BatchNorm<Parameter>& norm = batch_norms_[l];
    Parameter* const mean = Sums(buffers(l).mean);
    Parameter* const variance = Sums(buffers(l).variance);
    operators_.CorrectStatistics(fused(l).output_shape.channels, left, norm.mean, norm.variance,
                                 mean, variance);
    norm.mean = mean;
    norm.variance = variance;
  }
}

template <typename T>
Lazy<T> Network<T>::Value(int l) const {
  Lazy<T> value;
  if (l == FusedLayer::kImage) {
    value.shape = ShapeOf(spec_.input);
    value.raw = pass_.batch.images;
    return value;
  }
  const FusedLayer& layer = fused(l);
  value.shape = ShapeOf(layer.output_shape);
  value.raw = Values(buffers(l).raw);
  value.batch_norm = layer.batch_norm.has_value() ? &batch_norms_[l] : nullptr;
  value.activation = layer.activation;
  if (layer.skip != FusedLayer::kNone) value.skip = Values(buffers(layer.skip).applied);
  if (skip_sources_[l]) value.applied = Values(buffers(l).applied);
  return value;
}

template <typename T>
Lazy<T> Network<T>::OperatorInput(int l) const {
  const FusedLayer& layer = fused(l);
  if (!pass_.training() || layer.keep_probability >= 1.0f) return Value(layer.input());
  Lazy<T> dropped;
  dropped.shape = ShapeOf(layer.input_shape());
  dropped.raw = Values(buffers(l).dropped);
  return dropped;
}

template <typename T>
void Network<T>::ForwardLayer(int l) {
  const FusedLayer& layer = fused(l);
  const ConvolutionShape shape = ConvolutionOf(layer, pass_.batch.samples);
  StatisticsOut<T> statistics;
  if (layer.batch_norm.has_value() && UsesBatchStatistics(l)) {
    statistics = {Sums(buffers(l).mean), Sums(buffers(l).variance)};
  }
  if (pass_.training() && layer.keep_probability < 1.0f) {
    T* const dropped = Values(buffers(l).dropped);
    operators_.GlobalAveragePool(PixelByPixel(Value(layer.input())), dropped);
    operators_.Dropout(shape.in.size(), dropped, 1.0 - layer.keep_probability, pass_.dropout_seed,
                       DropoutSalt(layer), dropped);
  }
  const Lazy<T> x = OperatorInput(l);
  const LayerVariables& variables = plan_.variables[l];
  const Parameter* const weights = pass_.variables + std::max<int64_t>(variables.weights.offset, 0);
  const Parameter* const biases =
      variables.biases.present() ? pass_.variables + variables.biases.offset : nullptr;
  T* const raw = Values(buffers(l).raw);
  switch (layer.kind) {
    case FusedLayer::Kind::kConvolution:
      operators_.Convolution(shape, x, weights, biases, raw, statistics, workspace());
      break;
    case FusedLayer::Kind::kDepthwise:
      operators_.DepthwiseConvolution(shape, x, weights, raw, statistics, workspace());
      break;
    case FusedLayer::Kind::kGlobalAveragePool:
      operators_.GlobalAveragePool(x, raw);
      break;
    case FusedLayer::Kind::kGather:
      for (const Gather<T>& gather :
           GatherForward<T>(layer, pass_.batch.samples, WholeValues(l), raw)) {
        operators_.Run(gather);
      }
      break;
  }
  if (skip_sources_[l]) operators_.Apply(Value(l), Values(buffers(l).applied));
}

// Where backward writes the sums dgamma and dbeta. It needs them for the gradient of the layer's
// output in any case, so they go to the arena if the batch norm has no such variable.
template <typename T>
typename Network<T>::Parameter* Network<T>::GammaGradient(int l) const {
  const VariablePlace& place = plan_.variables[l].gamma;
  return place.present() ? pass_.gradient + place.offset : Sums(buffers(l).dgamma);
}

template <typename T>
typename Network<T>::Parameter* Network<T>::BetaGradient(int l) const {
  const VariablePlace& place = plan_.variables[l].beta;
  return place.present() ? pass_.gradient + place.offset : Sums(buffers(l).dbeta);
}

// Where the operator of a layer writes the gradient of its weights or biases. A gradient that is
// added to that of other layers goes to memory of its own first, because operators do not
// accumulate.
template <typename T>
typename Network<T>::Parameter* Network<T>::GradientOf(const LayerVariables& variables,
                                                       const VariablePlace& place) const {
  if (!place.shared) return pass_.gradient + std::max<int64_t>(place.offset, 0);
  Parameter* const shared = static_cast<Parameter*>(shared_->data());
  return &place == &variables.weights ? shared : shared + variables.weights.size;
}

template <typename T>
InputGradient<T> Network<T>::InputGradientOf(int l, size_t i) const {
  InputGradient<T> dx;
  const std::vector<int>& inputs = fused(l).inputs;
  const int input = inputs[i];
  if (input < plan_.first_trainable) return dx;
  dx.dz = Values(buffers(input).dz);
  // The buffer already holds a gradient to add to: that of the layer whose skip the input is, or
  // that of the later readers if the input has several. That gradient has already been multiplied
  // by the activation's derivative. Doing so again changes nothing, because the derivative is 0
  // or 1.
  const bool read_before = std::count(inputs.begin(), inputs.begin() + i, input) > 0;
  if (skip_sources_[input] || last_readers_[input] != l || read_before) dx.add = dx.dz;
  if (fused(input).batch_norm.has_value()) {
    dx.dbeta = BetaGradient(input);
    dx.dgamma = GammaGradient(input);
  }
  return dx;
}

template <typename T>
void Network<T>::BackwardLayer(int l) {
  const FusedLayer& layer = fused(l);
  if (layer.kind == FusedLayer::Kind::kGather) {
    BackwardGather(l);
    return;
  }
  if (layer.keep_probability >= 1.0f) {
    BackwardOperator(l, InputGradientOf(l, 0));
    return;
  }
  InputGradient<T> dropped;
  dropped.dz = Values(buffers(l).ddropped);
  BackwardOperator(l, dropped);
  const InputGradient<T> dx = InputGradientOf(l, 0);
  if (dx.dz == nullptr) return;
  operators_.Dropout(ShapeOf(layer.input_shape()).size(), dropped.dz, 1.0 - layer.keep_probability,
                     pass_.dropout_seed, DropoutSalt(layer), dropped.dz);
  operators_.GlobalAveragePoolBackward(PixelByPixel(Value(layer.input())), dropped.dz, dx,
                                       workspace());
}

template <typename T>
void Network<T>::BackwardOperator(int l, const InputGradient<T>& dx) {
  const FusedLayer& layer = fused(l);
  const ConvolutionShape shape = ConvolutionOf(layer, pass_.batch.samples);
  const LayerVariables& variables = plan_.variables[l];
  OutputGradient<T> dy;
  dy.dz = Values(buffers(l).dz);
  dy.raw = Values(buffers(l).raw);
  if (layer.batch_norm.has_value()) {
    dy.batch_norm = &batch_norms_[l];
    dy.dbeta = BetaGradient(l);
    dy.dgamma = GammaGradient(l);
  }
  const Lazy<T> x = OperatorInput(l);
  const Parameter* const weights = pass_.variables + std::max<int64_t>(variables.weights.offset, 0);
  Parameter* const dweights = GradientOf(variables, variables.weights);
  Parameter* const dbiases =
      variables.biases.present() ? GradientOf(variables, variables.biases) : nullptr;
  switch (layer.kind) {
    case FusedLayer::Kind::kConvolution:
      operators_.ConvolutionBackward(shape, x, weights, dy, dweights, dbiases, dx, workspace());
      break;
    case FusedLayer::Kind::kDepthwise:
      operators_.DepthwiseConvolutionBackward(shape, x, weights, dy, dweights, dx, workspace());
      break;
    case FusedLayer::Kind::kGlobalAveragePool:
      if (dx.dz != nullptr) operators_.GlobalAveragePoolBackward(x, dy.dz, dx, workspace());
      break;
    case FusedLayer::Kind::kGather:
      LOG(FATAL) << layer.name << ": BackwardGather computes it";
  }
  for (const VariablePlace* place : {&variables.weights, &variables.biases}) {
    if (!place->shared) continue;
    operators_.AddTo(place->size, GradientOf(variables, *place), pass_.gradient + place->offset);
  }
}

// The values of a gather's inputs in memory. Writes those that are computed where they are read.
template <typename T>
std::vector<const T*> Network<T>::WholeValues(int l) {
  const FusedLayer& layer = fused(l);
  std::vector<const T*> values;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const Lazy<T> x = Value(layer.inputs[i]);
    if (x.applied != nullptr) {
      values.push_back(x.applied);
    } else if (buffers(l).values[i] == BufferPlan::kAbsent) {
      values.push_back(x.raw);
    } else {
      T* const value = Values(buffers(l).values[i]);
      operators_.Apply(x, value);
      values.push_back(value);
    }
  }
  return values;
}

// Computes the gradient of each input's value, then takes it back through the input's activation
// and batch norm.
template <typename T>
void Network<T>::BackwardGather(int l) {
  const FusedLayer& layer = fused(l);
  const size_t inputs = layer.inputs.size();
  std::vector<const T*> x(inputs, nullptr);
  if (BackwardReadsInputs(layer)) x = WholeValues(l);
  std::vector<T*> dx;
  for (const int64_t place : buffers(l).dvalues) {
    dx.push_back(place == BufferPlan::kAbsent ? nullptr : Values(place));
  }
  for (const Gather<T>& gather :
       GatherBackward<T>(layer, pass_.batch.samples, x, Values(buffers(l).dz), dx)) {
    operators_.Run(gather);
  }
  for (size_t i = 0; i < inputs; ++i) {
    if (dx[i] == nullptr) continue;
    operators_.GlobalAveragePoolBackward(PixelByPixel(Value(layer.inputs[i])), dx[i],
                                         InputGradientOf(l, i), workspace());
  }
}

// Writes zeros for frozen variables and padding, which are the parts of the gradient that neither
// BackwardLayer nor PushMovingStatistics writes.
template <typename T>
void Network<T>::FinishGradient(int l) {
  for (const ElementRange& range : zeros_[l]) {
    operators_.Zero(range.size(), pass_.gradient + range.begin);
  }
}

// Writes the moving statistics of all layers, which the forward pass has computed.
template <typename T>
void Network<T>::PushMovingStatistics() {
  std::vector<PushedStatistics<Parameter>> norms;
  for (int l = 0; l < num_layers(); ++l) {
    const LayerVariables& variables = plan_.variables[l];
    if (!variables.moving_mean.present() || variables.moving_mean.frozen) continue;
    norms.push_back({variables.moving_mean.size, ShapeOf(fused(l).output_shape).rows(),
                     Sums(buffers(l).mean), Sums(buffers(l).variance),
                     pass_.gradient + variables.moving_mean.offset,
                     pass_.gradient + variables.moving_variance.offset});
  }
  operators_.MovingStatistics(norms);
}

template class Network<float>;
template class Network<double>;
template class Network<Bfloat16>;

}  // namespace pushpull
