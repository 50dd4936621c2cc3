// The phases of a convolution's input, which make the gradient of the input cheap where the stride
// is larger than 1. Plain values.
#ifndef PUSHPULL_KERNELS_CPU_INPUT_PHASES_H_
#define PUSHPULL_KERNELS_CPU_INPUT_PHASES_H_

#include <cstdint>
#include <vector>

#include "kernels/shape.h"

namespace pushpull {

// Input pixels that are read by the same taps of the kernel, and these taps. With stride s, tap
// (i, j) reads input pixel (h, w) for some output pixel only if
//
//   (h + padding.top) % s == i % s   and   (w + padding.left) % s == j % s,
//
// so there are at most s * s phases. Both the pixels and the taps of a phase are grids with steps
// of s. With stride 1 there is one phase, which has all pixels and all taps.
//
//   the phases A to D of a 3x3 kernel with stride 2 and padding top and left of 1:
//
//   taps  A B A      pixels  D C D C
//         C D C              B A B A
//         A B A              D C D C
struct InputPhase {
  Shape pixels;               // the grid of pixels: [n, lines, pixels per line, in.c]
  int64_t first_h, first_w;   // its first pixel in the input
  int tap_rows, tap_columns;  // the grid of taps; 0 if no tap reads these pixels
  int first_tap_row, first_tap_column;
  // Grid pixel (h, w) and grid tap (i, j) meet in output pixel
  // (h + output_h - i, w + output_w - j), if the output has that pixel.
  int64_t output_h, output_w;
  int kernel, stride;
  int64_t input_h, input_w;

  int64_t taps() const { return int64_t{tap_rows} * tap_columns; }
  // The number of a grid tap among all taps of the kernel. `i` counts the grid's taps row by row.
  int64_t Tap(int64_t i) const {
    return (first_tap_row + i / tap_columns * stride) * kernel + first_tap_column +
           i % tap_columns * stride;
  }
  // The row of a grid pixel in the input [n * h * w, c]. `i` counts the grid's pixels line by line.
  int64_t InputRow(int64_t i) const {
    const int64_t line = i / pixels.w;
    return (line / pixels.h * input_h + first_h + line % pixels.h * stride) * input_w + first_w +
           i % pixels.w * stride;
  }
};

// The phases that have pixels. Each input pixel is in one of them.
std::vector<InputPhase> InputPhases(const ConvolutionShape& shape);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_INPUT_PHASES_H_
