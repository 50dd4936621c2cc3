// Tested by tests/kernels/cuda/vendor/library_convolution_test.cc.
#include <algorithm>
#include <type_traits>

#include "common/base/status_macros.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/vendor/library_convolution.h"
#include "kernels/cuda/vendor/product_operands.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

Shape OnePixelSamples(const Shape& shape) { return {shape.rows(), 1, 1, shape.c}; }

// The places of the workspace follow one another in this order.
template <typename T>
struct Places {
  unsigned char* value = nullptr;     // x
  unsigned char* gradient = nullptr;  // dy
  unsigned char* filter = nullptr;    // weights, or their gradient
  unsigned char* result = nullptr;    // y before bias and padding, or the gradient of the value
  unsigned char* parts = nullptr;     // of sums, and what our kernels need
  unsigned char* product = nullptr;   // the product's workspace
  int64_t bytes = 0;                  // without the product's

  Places(const Queue& queue, const ConvolutionShape& shape, void* workspace) {
    constexpr int64_t kBytes = sizeof(T);
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    const auto take = [&](int64_t size) {
      auto* const place = reinterpret_cast<unsigned char*>(begin + bytes);
      bytes += (size + 255) / 256 * 256;
      return place;
    };
    const Shape out = shape.out();
    const int64_t padded = PaddedChannels(out.c);
    const int64_t filter_size = int64_t{shape.kernel} * shape.kernel * shape.in.c * padded;
    value = take(shape.in.rows() * PaddedChannels(shape.in.c) * kBytes);
    gradient = take(out.rows() * padded * kBytes);
    filter = take(filter_size * static_cast<int64_t>(sizeof(float)));
    result = take(std::max(shape.in.size(), out.rows() * padded) * kBytes);
    parts = take(std::max({SeparateGradientsBytes<T>(queue, shape), FinishOutputBytes(queue, out),
                           PoolWorkspaceBytes(queue, OnePixelSamples(shape.in))}));
    product = reinterpret_cast<unsigned char*>(begin + bytes);
  }
};

template <typename T>
absl::Status QueueWeightGradient(Queue* queue, const ConvolutionShape& shape, const T* x,
                                 const T* dy, float* dweights, Product* product,
                                 const Places<T>& places) {
  const int64_t padded = PaddedChannels(shape.out_channels);
  PP_RETURN_IF_ERROR(product->Queue(queue->stream, x, dy, places.filter, places.product));
  if (product->float_result()) {
    UnpackFilterGradient(queue, shape, reinterpret_cast<const float*>(places.filter), padded,
                         product->filter_order(), dweights);
  } else {
    UnpackFilterGradient(queue, shape, reinterpret_cast<const T*>(places.filter), padded,
                         product->filter_order(), dweights);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status QueueInputGradient(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                                const float* weights, const T* dy, const InputGradient<T>& dx,
                                Product* product, const Places<T>& places) {
  T* const filter = reinterpret_cast<T*>(places.filter);
  T* const dvalue = reinterpret_cast<T*>(places.result);
  PackFilter(queue, shape, weights, PaddedChannels(shape.out_channels), product->filter_order(),
             filter);
  PP_RETURN_IF_ERROR(product->Queue(queue->stream, dy, filter, dvalue, places.product));
  // The pooling of samples of one pixel passes gradients through: what is left is the activation
  // and the sums for the batch norm.
  Lazy<T> pixels = x;
  pixels.shape = OnePixelSamples(x.shape);
  PoolBackward(queue, pixels, dvalue, dx, places.parts);
  return absl::OkStatus();
}

}  // namespace

template <typename T>
ProductShape ProductOf(ProductKind kind, const ConvolutionShape& shape) {
  ProductShape product = {kind, shape, std::is_same_v<T, Bfloat16>};
  product.convolution.out_channels = PaddedChannels(shape.out_channels);
  return product;
}

template <typename T>
int64_t LibraryWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape,
                              int64_t product_workspace) {
  return Places<T>(queue, shape, nullptr).bytes + product_workspace;
}

template <typename T>
absl::Status LibraryForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                            const float* weights, const float* bias, T* y,
                            const StatisticsOut<T>& statistics, Product* product, void* workspace) {
  const Places<T> places(*queue, shape, workspace);
  const int64_t padded = PaddedChannels(shape.out_channels);
  T* const filter = reinterpret_cast<T*>(places.filter);
  T* const result = padded == shape.out_channels ? y : reinterpret_cast<T*>(places.result);
  const T* const value = FormValue(queue, shape, x, places.value);
  PackFilter(queue, shape, weights, padded, product->filter_order(), filter);
  PP_RETURN_IF_ERROR(product->Queue(queue->stream, value, filter, result, places.product));
  FinishOutput(queue, shape.out(), result, padded, bias, y, statistics,
               reinterpret_cast<float*>(places.parts));
  return absl::OkStatus();
}

template <typename T>
absl::Status LibraryBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                             const float* weights, const OutputGradient<T>& dy, float* dweights,
                             float* dbias, const InputGradient<T>& dx,
                             const GradientProducts& products, void* workspace) {
  const Places<T> places(*queue, shape, workspace);
  const bool own_weights = products.weights == nullptr;
  LazyView<T> plain;
  if (!own_weights) plain.raw = FormValue(queue, shape, x, places.value);
  const ValueSource<T> value = own_weights ? WritePlainValue(queue, shape, x, places.value)
                                           : ValueSource<T>{plain, static_cast<int>(shape.in.c)};
  const PlainGradientOf<T> gradient = FormGradient(queue, shape, dy, places.gradient);
  InputGradient<T> own_dx = dx;
  if (!own_weights) {
    PP_RETURN_IF_ERROR(QueueWeightGradient(queue, shape, value.x.raw, gradient.gradient.dz,
                                           dweights, products.weights, places));
  }
  if (products.input != nullptr && dx.dz != nullptr) {
    PP_RETURN_IF_ERROR(QueueInputGradient(queue, shape, x, weights, gradient.gradient.dz, dx,
                                          products.input, places));
    own_dx.dz = nullptr;
  }
  SeparateGradients(queue, shape, x, weights, dy, value, gradient, own_weights ? dweights : nullptr,
                    dbias, own_dx, places.parts);
  return absl::OkStatus();
}

#define PUSHPULL_INSTANTIATE(T)                                                                    \
  template ProductShape ProductOf<T>(ProductKind, const ConvolutionShape&);                        \
  template int64_t LibraryWorkspaceBytes<T>(const Queue&, const ConvolutionShape&, int64_t);       \
  template absl::Status LibraryForward<T>(Queue*, const ConvolutionShape&, const Lazy<T>&,         \
                                          const float*, const float*, T*, const StatisticsOut<T>&, \
                                          Product*, void*);                                        \
  template absl::Status LibraryBackward<T>(                                                        \
      Queue*, const ConvolutionShape&, const Lazy<T>&, const float*, const OutputGradient<T>&,     \
      float*, float*, const InputGradient<T>&, const GradientProducts&, void*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
