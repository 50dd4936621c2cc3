// Tested by tests/worker/model/random_graph_test.cc.
#include "worker/model/gather_layers.h"

#include <variant>

#include "glog/logging.h"

namespace pushpull {
namespace {

Shape ShapeFor(const FeatureShape& shape, int64_t samples) {
  return {samples, shape.height, shape.width, shape.channels};
}

gather::PoolWindows WindowsOf(const FusedLayer& layer, const Window& window, int64_t samples) {
  const SpatialPadding& padding = window.padding;
  return {ShapeFor(layer.input_shape(), samples),
          window.kernel,
          window.stride,
          {padding.top, padding.bottom, padding.left, padding.right}};
}

// What a layer's operands have in common, for the visitors Forward and Backward.
template <typename T>
struct GatherBuilder {
  const FusedLayer& layer;
  const int64_t samples;
  const std::vector<const T*>& x;

  Shape in(size_t i) const { return ShapeFor(layer.input_shapes[i], samples); }
  Shape out() const { return ShapeFor(layer.output_shape, samples); }
  int64_t pixels() const { return int64_t{layer.output_shape.height} * layer.output_shape.width; }
};

// The operators that no gather layer has. They are listed, so that the compiler names the visitor
// which lacks a new operator.
template <typename Result>
struct NotGathers {
  Result operator()(const op::Convolution&) const { return Fail(); }
  Result operator()(const op::DepthwiseConvolution&) const { return Fail(); }
  Result operator()(const op::BatchNorm&) const { return Fail(); }
  Result operator()(const op::GlobalAveragePool&) const { return Fail(); }
  Result operator()(const op::Dropout&) const { return Fail(); }

  static Result Fail() { LOG(FATAL) << "the operator is not a gather"; }
};

template <typename T>
struct Forward : GatherBuilder<T>, NotGathers<std::vector<Gather<T>>> {
  using Result = std::vector<Gather<T>>;
  using NotGathers<Result>::operator();
  T* y;

  Result operator()(const op::Activation& activation) const {
    return {
        gather::ActivationForward<T>{this->out().rows(), this->out().c, activation, this->x[0], y}};
  }
  Result operator()(const op::Add&) const {
    return {gather::AddForward<T>{this->out().rows(), this->out().c, this->x[0], this->x[1], y}};
  }
  Result operator()(const op::Multiply&) const {
    return {gather::MultiplyForward<T>{this->out().rows(), this->out().c, this->pixels(),
                                       this->x[0], this->x[1], y}};
  }
  Result operator()(const op::Concat&) const {
    Result copies;
    int64_t offset = 0;
    for (size_t i = 0; i < this->x.size(); ++i) {
      const int64_t channels = this->in(i).c;
      copies.push_back(gather::CopyChannels<T>{this->out().rows(), channels, this->x[i], channels,
                                               0, y, this->out().c, offset});
      offset += channels;
    }
    return copies;
  }
  Result operator()(const op::MaxPool& pool) const {
    return {gather::MaxPoolForward<T>{this->out().rows(), this->out().c,
                                      WindowsOf(this->layer, pool.window, this->samples),
                                      this->x[0], y}};
  }
  Result operator()(const op::AveragePool& pool) const {
    return {gather::AveragePoolForward<T>{this->out().rows(), this->out().c,
                                          WindowsOf(this->layer, pool.window, this->samples),
                                          this->x[0], y}};
  }
  Result operator()(const op::Upsample& upsample) const {
    return {gather::UpsampleForward<T>{this->out().rows(), this->out().c, this->in(0),
                                       upsample.factor, this->x[0], y}};
  }
  Result operator()(const op::RepeatChannels& repeat) const {
    return {gather::RepeatChannelsForward<T>{this->out().rows(), this->out().c, repeat.times,
                                             this->x[0], y}};
  }
};

template <typename T>
struct Backward : GatherBuilder<T>, NotGathers<std::vector<Gather<T>>> {
  using Result = std::vector<Gather<T>>;
  using NotGathers<Result>::operator();
  const T* dy;
  const std::vector<T*>& dx;

  Result operator()(const op::Activation& activation) const {
    if (dx[0] == nullptr) return {};
    return {gather::ActivationBackward<T>{this->out().rows(), this->out().c, activation, this->x[0],
                                          dy, dx[0]}};
  }
  Result operator()(const op::Add&) const {
    Result copies;
    const Shape out = this->out();
    for (T* const to : dx) {
      if (to != nullptr)
        copies.push_back(gather::CopyChannels<T>{out.rows(), out.c, dy, out.c, 0, to, out.c, 0});
    }
    return copies;
  }
  Result operator()(const op::Multiply&) const {
    Result products;
    if (dx[0] != nullptr) {
      products.push_back(gather::MultiplyForward<T>{this->out().rows(), this->out().c,
                                                    this->pixels(), dy, this->x[1], dx[0]});
    }
    if (dx[1] != nullptr) {
      products.push_back(gather::MultiplyBackwardGate<T>{this->samples, this->out().c,
                                                         this->pixels(), this->x[0], dy, dx[1]});
    }
    return products;
  }
  Result operator()(const op::Concat&) const {
    Result copies;
    int64_t offset = 0;
    for (size_t i = 0; i < dx.size(); ++i) {
      const int64_t channels = this->in(i).c;
      if (dx[i] != nullptr) {
        copies.push_back(gather::CopyChannels<T>{this->out().rows(), channels, dy, this->out().c,
                                                 offset, dx[i], channels, 0});
      }
      offset += channels;
    }
    return copies;
  }
  Result operator()(const op::MaxPool& pool) const {
    if (dx[0] == nullptr) return {};
    return {gather::MaxPoolBackward<T>{this->in(0).rows(), this->in(0).c,
                                       WindowsOf(this->layer, pool.window, this->samples),
                                       this->x[0], dy, dx[0]}};
  }
  Result operator()(const op::AveragePool& pool) const {
    if (dx[0] == nullptr) return {};
    return {gather::AveragePoolBackward<T>{this->in(0).rows(), this->in(0).c,
                                           WindowsOf(this->layer, pool.window, this->samples), dy,
                                           dx[0]}};
  }
  Result operator()(const op::Upsample& upsample) const {
    if (dx[0] == nullptr) return {};
    return {gather::UpsampleBackward<T>{this->in(0).rows(), this->in(0).c, this->in(0),
                                        upsample.factor, dy, dx[0]}};
  }
  Result operator()(const op::RepeatChannels& repeat) const {
    if (dx[0] == nullptr) return {};
    return {gather::RepeatChannelsBackward<T>{this->in(0).rows(), this->in(0).c, repeat.times, dy,
                                              dx[0]}};
  }
};

// Whether Backward reads `x`.
struct ReadsInputs : NotGathers<bool> {
  using NotGathers<bool>::operator();

  bool operator()(const op::Activation&) const { return true; }
  bool operator()(const op::Add&) const { return false; }
  bool operator()(const op::Multiply&) const { return true; }
  bool operator()(const op::Concat&) const { return false; }
  bool operator()(const op::MaxPool&) const { return true; }
  bool operator()(const op::AveragePool&) const { return false; }
  bool operator()(const op::Upsample&) const { return false; }
  bool operator()(const op::RepeatChannels&) const { return false; }
};

}  // namespace

template <typename T>
std::vector<Gather<T>> GatherForward(const FusedLayer& layer, int64_t samples,
                                     const std::vector<const T*>& x, T* y) {
  return std::visit(Forward<T>{{layer, samples, x}, {}, y}, layer.gather);
}

template <typename T>
std::vector<Gather<T>> GatherBackward(const FusedLayer& layer, int64_t samples,
                                      const std::vector<const T*>& x, const T* dy,
                                      const std::vector<T*>& dx) {
  return std::visit(Backward<T>{{layer, samples, x}, {}, dy, dx}, layer.gather);
}

bool BackwardReadsInputs(const FusedLayer& layer) {
  return std::visit(ReadsInputs(), layer.gather);
}

#define PUSHPULL_INSTANTIATE(T)                                                       \
  template std::vector<Gather<T>> GatherForward<T>(const FusedLayer&, int64_t,        \
                                                   const std::vector<const T*>&, T*); \
  template std::vector<Gather<T>> GatherBackward<T>(                                  \
      const FusedLayer&, int64_t, const std::vector<const T*>&, const T*, const std::vector<T*>&)
PUSHPULL_INSTANTIATE(float);
PUSHPULL_INSTANTIATE(double);
PUSHPULL_INSTANTIATE(Bfloat16);
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull
