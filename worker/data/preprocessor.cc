#include "worker/data/preprocessor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "glog/logging.h"

#include "kernels/image_math.h"

namespace pushpull {
namespace {

template <typename Pixel>
float Grey(const Pixel* rgb) {
  return GreyOf(rgb[0], rgb[1], rgb[2]);
}

// Moves a row by `shift` pixels in place and fills the vacated pixels with 0.
void ShiftRow(int shift, int width, int channels, float* row) {
  const int64_t kept = int64_t{1} * std::max(0, width - std::abs(shift)) * channels;
  const int64_t total = int64_t{1} * width * channels;
  if (shift > 0) {
    std::memmove(row + total - kept, row, kept * sizeof(float));
    std::fill(row, row + total - kept, 0.0f);
  } else if (shift < 0) {
    std::memmove(row, row + total - kept, kept * sizeof(float));
    std::fill(row + kept, row + total, 0.0f);
  }
}

}  // namespace

ImageSize ContentSize(const InputShape& shape, const ImageSize& image) {
  if (!shape.keep_aspect_ratio.has_value()) return {shape.height, shape.width};
  return ScaledSize(*shape.keep_aspect_ratio, image);
}

InputShape InputShapeOf(const NetworkSpec& network) {
  return {network.input.height, network.input.width, network.input.channels,
          network.keep_aspect_ratio};
}

InputWindow WindowOf(const InputShape& shape, const ImageSize& image) {
  const ImageSize content = ContentSize(shape, image);
  return {static_cast<float>(content.height) / static_cast<float>(shape.height),
          static_cast<float>(content.width) / static_cast<float>(shape.width)};
}

void Preprocessor::Axis::Fill(int in, int out) {
  if (in_size == in && out_size == out) return;
  in_size = in;
  out_size = out;
  low.resize(out);
  high.resize(out);
  weight.resize(out);
  for (int i = 0; i < out; ++i) {
    const ResizeTap tap = ResizeTapOf(i, in, out);
    low[i] = tap.low;
    high[i] = tap.high;
    weight[i] = tap.weight;
  }
}

Preprocessor::Preprocessor(const InputShape& shape) : shape_(shape) {
  CHECK_GE(shape.height, 1);
  CHECK_GE(shape.width, 1);
  CHECK(shape.channels == 1 || shape.channels == 3) << shape.channels;
  for (int i = 0; i < 256; ++i) normalized_[i] = NormalizedPixel(static_cast<float>(i));
  for (std::vector<float>& row : spread_rows_) {
    row.resize(size_t{1} * shape.width * shape.channels);
  }
  if (!shape.keep_aspect_ratio.has_value()) return;
  CHECK(shape.height == shape.keep_aspect_ratio->max_dimension && shape.width == shape.height);
  for (int x = 0; x < shape.width; ++x) {
    for (int c = 0; c < shape.channels; ++c) {
      padding_row_.push_back(NormalizedPixel(shape.keep_aspect_ratio->pad_value[c]));
    }
  }
}

namespace {

// Reads row `y` as [width, channels] floats in 0..255. `channels` is image.channels, or 1 to
// convert RGB to grey.
template <typename Pixel>
void ReadRow(const Pixel* pixels, const PixelView& image, int channels, int y, float* row) {
  const Pixel* const in = pixels + size_t{1} * y * image.width * image.channels;
  if (image.channels == channels) {
    for (int i = 0; i < image.width * channels; ++i) row[i] = in[i];
  } else {
    for (int x = 0; x < image.width; ++x) row[x] = Grey(in + 3 * x);
  }
}

}  // namespace

void Preprocessor::SpreadRow(const PixelView& image, int y, float* row) {
  const int channels = std::min(image.channels, shape_.channels);
  source_row_.resize(size_t{1} * image.width * channels);
  float* const source = source_row_.data();
  if (image.bytes != nullptr) {
    ReadRow(image.bytes, image, channels, y, source);
  } else {
    ReadRow(image.floats, image, channels, y, source);
  }
  for (int x = 0; x < content_.width; ++x) {
    const float* const left = source + x_axis_.low[x] * channels;
    const float* const right = source + x_axis_.high[x] * channels;
    const float weight = x_axis_.weight[x];
    for (int c = 0; c < channels; ++c) *row++ = Between(left[c], right[c], weight);
  }
}

void Preprocessor::MakeRow(const PixelView& image, int y, float* row) {
  const int width = content_.width;
  if (image.bytes != nullptr && image.height == content_.height && image.width == width) {
    const uint8_t* const in = image.bytes + size_t{1} * y * width * image.channels;
    if (image.channels == shape_.channels) {
      for (int i = 0; i < width * image.channels; ++i) row[i] = normalized_[in[i]];
    } else if (image.channels == 1) {
      for (int x = 0; x < width; ++x) {
        row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = normalized_[in[x]];
      }
    } else {
      for (int x = 0; x < width; ++x) row[x] = NormalizedPixel(Grey(in + 3 * x));
    }
    return;
  }
  const std::array<int, 2> wanted = {y_axis_.low[y], y_axis_.high[y]};
  if (spread_row_y_[1] == wanted[0]) {  // the lower row of the last call is the upper one now
    std::swap(spread_rows_[0], spread_rows_[1]);
    std::swap(spread_row_y_[0], spread_row_y_[1]);
  }
  for (int i = 0; i < 2; ++i) {
    if (spread_row_y_[i] == wanted[i]) continue;
    SpreadRow(image, wanted[i], spread_rows_[i].data());
    spread_row_y_[i] = wanted[i];
  }
  const float* const top = spread_rows_[0].data();
  const float* const bottom = spread_rows_[1].data();
  const float weight = y_axis_.weight[y];
  if (image.channels == 1 && shape_.channels == 3) {
    for (int x = 0; x < width; ++x) {
      const float value = NormalizedPixel(Between(top[x], bottom[x], weight));
      row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = value;
    }
  } else {
    for (int i = 0; i < width * shape_.channels; ++i) {
      row[i] = NormalizedPixel(Between(top[i], bottom[i], weight));
    }
  }
}

PixelView ViewPixels(const Image& image) {
  CHECK_EQ(image.pixels.size(), size_t{1} * image.height * image.width * image.channels);
  return {image.height, image.width, image.channels, image.pixels.data(), nullptr};
}

void Preprocessor::MakeInputRow(const PixelView& image, int y, float* row) {
  if (!padding_row_.empty()) std::copy(padding_row_.begin(), padding_row_.end(), row);
  if (y < content_.height) MakeRow(image, y, row);
}

void Preprocessor::Begin(const PixelView& image) {
  CHECK((image.bytes == nullptr) != (image.floats == nullptr));
  content_ = ContentSize(shape_, {image.height, image.width});
  y_axis_.Fill(image.height, content_.height);
  x_axis_.Fill(image.width, content_.width);
  spread_row_y_ = {-1, -1};
}

void Preprocessor::MakeShiftedRow(const PixelView& image, const Shift& shift, int y, float* row) {
  const int source_y = y - shift.y;
  if (source_y < 0 || source_y >= shape_.height) {
    std::fill_n(row, int64_t{1} * shape_.width * shape_.channels, 0.0f);
    return;
  }
  MakeInputRow(image, source_y, row);
  ShiftRow(shift.x, shape_.width, shape_.channels, row);
}

void Preprocessor::Run(const PixelView& image, const Shift& shift, float* out) {
  Begin(image);
  const int64_t row_size = int64_t{1} * shape_.width * shape_.channels;
  for (int y = 0; y < shape_.height; ++y, out += row_size) MakeShiftedRow(image, shift, y, out);
}

void Preprocessor::RunToBytes(const PixelView& image, const Shift& shift, uint8_t* out) {
  Begin(image);
  const int64_t row_size = int64_t{1} * shape_.width * shape_.channels;
  input_row_.resize(row_size);
  for (int y = 0; y < shape_.height; ++y, out += row_size) {
    MakeShiftedRow(image, shift, y, input_row_.data());
    for (int64_t i = 0; i < row_size; ++i) {
      const float byte = (input_row_[i] + 1.0f) * (255.0f / 2.0f);
      out[i] = static_cast<uint8_t>(std::clamp(byte + 0.5f, 0.0f, 255.0f));
    }
  }
}

}  // namespace pushpull
