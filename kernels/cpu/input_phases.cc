#include "kernels/cpu/input_phases.h"

#include <algorithm>

namespace pushpull {

namespace {

// The numbers of {first, first + step, first + 2 * step, ...} that are less than `end`.
int64_t CountSteps(int64_t first, int64_t end, int64_t step) {
  return first < end ? (end - first + step - 1) / step : 0;
}

}  // namespace

std::vector<InputPhase> InputPhases(const ConvolutionShape& shape) {
  const Shape& in = shape.in;
  const int kernel = shape.kernel, stride = shape.stride;
  const auto first_pixel = [&](int tap, int padding) {
    return ((tap - padding) % stride + stride) % stride;
  };
  std::vector<InputPhase> phases;
  for (int i = 0; i < stride; ++i) {
    for (int j = 0; j < stride; ++j) {
      const int64_t h = first_pixel(i, shape.padding.top), w = first_pixel(j, shape.padding.left);
      const InputPhase phase{
          .pixels = {in.n, CountSteps(h, in.h, stride), CountSteps(w, in.w, stride), in.c},
          .first_h = h,
          .first_w = w,
          .tap_rows = static_cast<int>(CountSteps(i, kernel, stride)),
          .tap_columns = static_cast<int>(CountSteps(j, kernel, stride)),
          .first_tap_row = i,
          .first_tap_column = j,
          .output_h = (h + shape.padding.top - i) / stride,
          .output_w = (w + shape.padding.left - j) / stride,
          .kernel = kernel,
          .stride = stride,
          .input_h = in.h,
          .input_w = in.w};
      if (phase.pixels.rows() > 0) phases.push_back(phase);
    }
  }
  return phases;
}

}  // namespace pushpull
