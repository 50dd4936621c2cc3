// Repetition of channels.
#ifndef PUSHPULL_KERNELS_GATHER_REPEAT_H_
#define PUSHPULL_KERNELS_GATHER_REPEAT_H_

#include <cstdint>

#include "kernels/gather/numbers.h"
#include "kernels/host_device.h"

namespace pushpull::gather {

// y[row, c] = x[row, c / times]. `channels` is a multiple of `times`.
template <typename T>
struct RepeatChannelsForward {
  static constexpr char kName[] = "repeat_channels";
  int64_t rows, channels;  // of y
  int64_t times;
  const T* x;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    y[row * channels + c] = x[row * (channels / times) + c / times];
  }
};

// dx[row, c] = the sum of dy over the repetitions of channel c.
template <typename T>
struct RepeatChannelsBackward {
  static constexpr char kName[] = "repeat_channels_backward";
  int64_t rows, channels;  // of dx
  int64_t times;
  const T* dy;
  T* dx;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    WideOf<T> sum = 0;
    for (int64_t k = 0; k < times; ++k) sum += Widen(dy[i * times + k]);
    Narrow(sum, dx + i);
  }
};

}  // namespace pushpull::gather

#endif  // PUSHPULL_KERNELS_GATHER_REPEAT_H_
