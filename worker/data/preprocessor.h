// From a decoded image to the network's input: channels, size, range, shift.
//
// Order: grey <-> RGB (unrounded), bilinear resize as TensorFlow 1 does it, x * (2 / 255) - 1,
// shift (formulas: kernels/picture_math.h). With keep_aspect_ratio the resized picture lies in the
// upper left corner and the rest is padding.
#ifndef PUSHPULL_WORKER_DATA_PREPROCESSOR_H_
#define PUSHPULL_WORKER_DATA_PREPROCESSOR_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/image_resize.h"
#include "common/model/network_spec.h"
#include "worker/data/image_source.h"

namespace pushpull {

// Of the network's input.
struct InputShape {
  int height = 0;
  int width = 0;
  int channels = 0;                                         // 1 or 3
  std::optional<AspectRatioResize> keep_aspect_ratio = {};  // height = width = max_dimension then
  int64_t num_elements() const { return int64_t{1} * height * width * channels; }
};

InputShape InputShapeOf(const NetworkSpec& network);

// The part of the input that a picture of this size fills, from the upper left corner.
ImageSize ContentSize(const InputShape& shape, const ImageSize& picture);
// The share of the input's height and width that the picture covers, from the upper left corner.
struct InputWindow {
  float height = 1.0f;
  float width = 1.0f;
};
InputWindow WindowOf(const InputShape& shape, const ImageSize& picture);

// An image of bytes or of numbers in 0..255, [height, width, channels]; exactly one pointer is set.
struct PixelView {
  int height = 0;
  int width = 0;
  int channels = 0;  // 1 or 3
  const uint8_t* bytes = nullptr;
  const float* floats = nullptr;
};

// CHECKs that the image has as many pixels as it says.
PixelView ViewPixels(const Image& image);

// The pixel (y, x) of the result is that of the input (resized to the network's size) at (y -
// shift.y, x - shift.x); outside of it 0 after normalisation, a middle grey.
struct Shift {
  int y = 0;
  int x = 0;
};

// Holds scratch memory of a few rows: use one per thread. Not thread-safe.
class Preprocessor {
 public:
  explicit Preprocessor(const InputShape& shape);

  // Writes [shape.height, shape.width, shape.channels] floats in [-1, 1] to out.
  void Run(const PixelView& image, const Shift& shift, float* out);
  // The same as the nearest bytes, of which x * (2 / 255) - 1 are the numbers. Where the image
  // neither changed its size nor its colours, nothing is lost.
  void RunToBytes(const PixelView& image, const Shift& shift, uint8_t* out);

 private:
  // Per output coordinate the two source coordinates and the weight of the second.
  struct Axis {
    int in_size = 0;
    int out_size = 0;
    std::vector<int> low;
    std::vector<int> high;
    std::vector<float> weight;
    void Fill(int in_size, int out_size);
  };

  void Begin(const PixelView& image);
  // Row `y` of the input, normalised, [width, channels] floats.
  void MakeShiftedRow(const PixelView& image, const Shift& shift, int y, float* row);
  // Row `y` of the input before the shift, normalised, [width, channels] floats.
  void MakeInputRow(const PixelView& image, int y, float* row);
  // Row `y` of the resized image, normalised, [content width, channels] floats.
  void MakeRow(const PixelView& image, int y, float* row);
  // Row `y` of the source as [in width, channels] floats in 0..255, spread to the content's width.
  void SpreadRow(const PixelView& image, int y, float* row);

  const InputShape shape_;
  std::array<float, 256> normalized_;  // of each pixel value
  std::vector<float> padding_row_;     // normalised; empty without keep_aspect_ratio
  ImageSize content_;                  // of the resized image being made
  Axis y_axis_;
  Axis x_axis_;
  std::vector<float> source_row_;
  std::vector<float> input_row_;
  std::array<std::vector<float>, 2> spread_rows_;
  std::array<int, 2> spread_row_y_{-1, -1};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_PREPROCESSOR_H_
