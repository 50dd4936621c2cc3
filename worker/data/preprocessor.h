// Converts a decoded image to the network's input: channels, size, range and shift.
//
// The steps are, in this order: conversion between grey and RGB without rounding, bilinear resize
// as in TensorFlow 1, x * (2 / 255) - 1, and the shift. kernels/image_math.h has the formulas.
// With keep_aspect_ratio the resized image is in the upper left corner and the rest is padding.
#ifndef PUSHPULL_WORKER_DATA_PREPROCESSOR_H_
#define PUSHPULL_WORKER_DATA_PREPROCESSOR_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/image_resize.h"
#include "common/model/network_spec.h"
#include "kernels/cpu/image_rows.h"
#include "kernels/packed_image.h"
#include "worker/data/image_source.h"

namespace pushpull {

// The shape of the network's input. With keep_aspect_ratio, height and width are max_dimension.
struct InputShape {
  int height = 0;
  int width = 0;
  int channels = 0;  // 1 or 3
  std::optional<AspectRatioResize> keep_aspect_ratio = {};
  int64_t num_elements() const { return int64_t{1} * height * width * channels; }
};

InputShape InputShapeOf(const NetworkSpec& network);

// Returns the size, in pixels of the input, to which an image of size `image` is resized. The
// resized image fills the upper left corner of the input.
ImageSize ContentSize(const InputShape& shape, const ImageSize& image);
// ContentSize as shares of the input's height and width.
struct InputWindow {
  float height = 1.0f;
  float width = 1.0f;
};
InputWindow WindowOf(const InputShape& shape, const ImageSize& image);

// A view of pixels in 0..255, [height, width, channels]. Exactly one of the pointers is set; the
// memory belongs to the caller.
struct PixelView {
  int height = 0;
  int width = 0;
  int channels = 0;  // 1 or 3
  const uint8_t* bytes = nullptr;
  const float* floats = nullptr;
};

// Returns a view of the image, which must outlive the view. CHECKs that image.pixels has the size
// that follows from its shape.
PixelView ViewPixels(const Image& image);

// Moves the network's input after the resize: its pixel (y, x) becomes the one that was at
// (y - shift.y, x - shift.x). Pixels from outside are 0 after normalisation, a middle grey.
struct Shift {
  int y = 0;
  int x = 0;
};

// Not thread-safe. Holds buffers of a few rows, so keep one object per thread.
class Preprocessor {
 public:
  explicit Preprocessor(const InputShape& shape);

  // Writes [shape.height, shape.width, shape.channels] floats in [-1, 1] to `out`.
  void Run(const PixelView& image, const Shift& shift, float* out);
  // Does the same with an image whose pixels are not in their places: `map` leads to them in
  // `stored`. CHECKs that the map has no padding.
  void Run(const PixelView& stored, const PixelMap& map, const Shift& shift, float* out);
  // Writes the same values to `out` as bytes b, rounded so that b * (2 / 255) - 1 is nearest to the
  // float. This is exact if the image is neither resized nor converted between grey and RGB.
  void RunToBytes(const PixelView& image, const Shift& shift, uint8_t* out);

 private:
  // For each row of the resized image, the rows that it lies between.
  struct Rows {
    int in_size = 0;
    std::vector<ResizeTap> taps;
    void Fill(int in_size, int out_size);
  };
  // The image that is being resized.
  struct Edited {
    PixelView stored;
    PixelMap map = {};
  };

  void Begin(const PixelView& stored, const PixelMap& map);
  // Writes row `y` of the input, normalised, [width, channels] floats.
  void MakeShiftedRow(const Shift& shift, int y, float* row);
  // Writes row `y` of the input before the shift, normalised, [width, channels] floats.
  void MakeInputRow(int y, float* row);
  // Writes row `y` of the resized image, normalised, [content width, channels] floats.
  void MakeRow(int y, float* row);
  // Writes row `y` of the edited image, resized along x only: [content width, channels_] floats in
  // 0..255.
  template <typename Pixel>
  void ResizeRow(const Pixel* pixels, int y, float* row);

  const InputShape shape_;
  std::vector<float> padding_row_;  // normalised; empty without keep_aspect_ratio
  ImageSize content_;               // size to which the current image is resized
  int channels_ = 0;                // the smaller number of image and network
  Edited image_;
  Rows rows_;
  RowResizer columns_;
  std::vector<float> input_row_;
  std::vector<float> grey_row_;       // resized, before it becomes three channels
  std::vector<float> grey_pixels_;    // a row of RGB pixels as grey ones
  std::vector<uint8_t> byte_column_;  // a row of a rotated image, which is a column in memory
  std::vector<float> float_column_;
  std::array<std::vector<float>, 2> resized_rows_;
  std::array<int, 2> resized_row_y_{-1, -1};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_PREPROCESSOR_H_
