// Activations: y = f(x) for each element. docs/HACKING.md says how to add an activation.
#ifndef PUSHPULL_KERNELS_GATHER_ACTIVATION_H_
#define PUSHPULL_KERNELS_GATHER_ACTIVATION_H_

#include <cmath>
#include <cstdint>

#include "common/model/operators.h"
#include "kernels/gather/numbers.h"
#include "kernels/host_device.h"

namespace pushpull::gather {

// 1 / (1 + exp(-x)), without overflow for any x.
template <typename W>
PUSHPULL_HOST_DEVICE W Sigmoid(W x) {
  const W e = std::exp(x < W(0) ? x : -x);
  return (x < W(0) ? e : W(1)) / (W(1) + e);
}

// Written so that a NaN passes through: a comparison with it is false.
template <typename W>
PUSHPULL_HOST_DEVICE W Clamp(W x, W low, W high) {
  return x < low ? low : x > high ? high : x;
}

template <typename W>
PUSHPULL_HOST_DEVICE W ActivationValue(const op::Activation& activation, W x) {
  switch (activation.function) {
    case ActivationFunction::kNone:
      return x;
    case ActivationFunction::kRelu:
      return x < W(0) ? W(0) : x;
    case ActivationFunction::kRelu6:
      return Clamp(x, W(0), W(6));
    case ActivationFunction::kLeakyRelu:
      return x < W(0) ? W(activation.negative_slope) * x : x;
    case ActivationFunction::kHardSigmoid:
      return Clamp(x + W(3), W(0), W(6)) / W(6);
    case ActivationFunction::kHardSwish:
      return x * Clamp(x + W(3), W(0), W(6)) / W(6);
    case ActivationFunction::kSigmoid:
      return Sigmoid(x);
    case ActivationFunction::kSwish:
      return x * Sigmoid(x);
  }
  return x;
}

// The derivative of ActivationValue with respect to x. At the kinks x = 0 and x = -3 it is the
// derivative on the left, at all others the one on the right.
template <typename W>
PUSHPULL_HOST_DEVICE W ActivationDerivative(const op::Activation& activation, W x) {
  switch (activation.function) {
    case ActivationFunction::kNone:
      return W(1);
    case ActivationFunction::kRelu:
      return x <= W(0) ? W(0) : W(1);
    case ActivationFunction::kRelu6:
      return x <= W(0) || x >= W(6) ? W(0) : W(1);
    case ActivationFunction::kLeakyRelu:
      return x <= W(0) ? W(activation.negative_slope) : W(1);
    case ActivationFunction::kHardSigmoid:
      return x <= W(-3) || x >= W(3) ? W(0) : W(1) / W(6);
    case ActivationFunction::kHardSwish:
      return x <= W(-3) ? W(0) : x >= W(3) ? W(1) : (x + x + W(3)) / W(6);
    case ActivationFunction::kSigmoid: {
      const W s = Sigmoid(x);
      return s * (W(1) - s);
    }
    case ActivationFunction::kSwish: {
      const W s = Sigmoid(x);
      return s + x * s * (W(1) - s);
    }
  }
  return W(1);
}

template <typename T>
struct ActivationForward {
  static constexpr char kName[] = "activation";
  int64_t rows, channels;
  op::Activation activation;
  const T* x;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    Narrow(ActivationValue(activation, Widen(x[i])), y + i);
  }
};

// dx may be dy.
template <typename T>
struct ActivationBackward {
  static constexpr char kName[] = "activation_backward";
  int64_t rows, channels;
  op::Activation activation;
  const T* x;
  const T* dy;
  T* dx;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    Narrow(Widen(dy[i]) * ActivationDerivative(activation, Widen(x[i])), dx + i);
  }
};

}  // namespace pushpull::gather

#endif  // PUSHPULL_KERNELS_GATHER_ACTIVATION_H_
