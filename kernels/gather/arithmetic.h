// Sums and products of two tensors.
#ifndef PUSHPULL_KERNELS_GATHER_ARITHMETIC_H_
#define PUSHPULL_KERNELS_GATHER_ARITHMETIC_H_

#include <cstdint>

#include "kernels/gather/numbers.h"
#include "kernels/host_device.h"

namespace pushpull::gather {

// y = a + b. y may be a or b. The gradient of both is that of y.
template <typename T>
struct AddForward {
  static constexpr char kName[] = "add";
  int64_t rows, channels;
  const T* a;
  const T* b;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    Narrow(Widen(a[i]) + Widen(b[i]), y + i);
  }
};

// y[n, pixel, c] = x[n, pixel, c] * gate[n, c], with `pixels` pixels per sample: a gate per
// channel, as in squeeze and excitation. It is its own gradient for x: y is then dx, and x is dy.
template <typename T>
struct MultiplyForward {
  static constexpr char kName[] = "multiply";
  int64_t rows, channels;  // of y
  int64_t pixels;
  const T* x;
  const T* gate;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    Narrow(Widen(x[i]) * Widen(gate[row / pixels * channels + c]), y + i);
  }
};

// dgate[n, c] = the sum of dy[n, pixel, c] * x[n, pixel, c] over the pixels. `rows` is the number
// of samples.
template <typename T>
struct MultiplyBackwardGate {
  static constexpr char kName[] = "multiply_backward";
  int64_t rows, channels;  // of dgate
  int64_t pixels;
  const T* x;
  const T* dy;
  T* dgate;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    WideOf<T> sum = 0;
    for (int64_t p = 0; p < pixels; ++p) {
      const int64_t i = (row * pixels + p) * channels + c;
      sum += Widen(dy[i]) * Widen(x[i]);
    }
    Narrow(sum, dgate + row * channels + c);
  }
};

// to[row, to_offset + c] = from[row, from_offset + c], where the rows of the tensors have
// to_channels and from_channels numbers: a part of a concatenation, or of its gradient.
template <typename T>
struct CopyChannels {
  static constexpr char kName[] = "concat";
  int64_t rows, channels;  // of the part
  const T* from;
  int64_t from_channels, from_offset;
  T* to;
  int64_t to_channels, to_offset;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    to[row * to_channels + to_offset + c] = from[row * from_channels + from_offset + c];
  }
};

}  // namespace pushpull::gather

#endif  // PUSHPULL_KERNELS_GATHER_ARITHMETIC_H_
