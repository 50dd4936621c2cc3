// Reads and writes the numbers of a network in the type that formulas compute in: double for
// double, float for float and Bfloat16.
#ifndef PUSHPULL_KERNELS_GATHER_NUMBERS_H_
#define PUSHPULL_KERNELS_GATHER_NUMBERS_H_

#include "kernels/bfloat16.h"
#include "kernels/host_device.h"

namespace pushpull::gather {

PUSHPULL_HOST_DEVICE inline float Widen(Bfloat16 value) { return ToFloat(value); }
PUSHPULL_HOST_DEVICE inline float Widen(float value) { return value; }
PUSHPULL_HOST_DEVICE inline double Widen(double value) { return value; }

// For formulas that compute in double with numbers of any type.
template <typename T>
PUSHPULL_HOST_DEVICE double ToDouble(T value) {
  return Widen(value);
}

PUSHPULL_HOST_DEVICE inline void Narrow(float value, Bfloat16* to) { *to = ToBfloat16(value); }
PUSHPULL_HOST_DEVICE inline void Narrow(float value, float* to) { *to = value; }
PUSHPULL_HOST_DEVICE inline void Narrow(double value, double* to) { *to = value; }

// float or double.
template <typename T>
using WideOf = decltype(Widen(T()));

}  // namespace pushpull::gather

#endif  // PUSHPULL_KERNELS_GATHER_NUMBERS_H_
