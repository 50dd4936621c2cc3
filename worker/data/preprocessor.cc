#include "worker/data/preprocessor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "glog/logging.h"

#include "kernels/image_block.h"
#include "kernels/image_math.h"
#include "worker/data/augment/pixel_map_edits.h"

namespace pushpull {
namespace {

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

void Preprocessor::Rows::Fill(int in, int out) {
  if (in_size == in && taps.size() == static_cast<size_t>(out)) return;
  in_size = in;
  taps.resize(out);
  for (int i = 0; i < out; ++i) taps[i] = ResizeTapOf(i, in, out);
}

Preprocessor::Preprocessor(const InputShape& shape) : shape_(shape) {
  CHECK_GE(shape.height, 1);
  CHECK_GE(shape.width, 1);
  CHECK(shape.channels == 1 || shape.channels == 3) << shape.channels;
  for (std::vector<float>& row : resized_rows_) {
    row.resize(PaddedRow(int64_t{1} * shape.width * shape.channels));
  }
  if (shape.channels == 3) grey_row_.resize(shape.width);
  if (!shape.keep_aspect_ratio.has_value()) return;
  CHECK(shape.height == shape.keep_aspect_ratio->max_dimension && shape.width == shape.height);
  for (int x = 0; x < shape.width; ++x) {
    for (int c = 0; c < shape.channels; ++c) {
      padding_row_.push_back(NormalizedPixel(shape.keep_aspect_ratio->pad_value[c]));
    }
  }
}

namespace {

std::vector<uint8_t>& Scratch(const uint8_t*, std::vector<uint8_t>* bytes, std::vector<float>*) {
  return *bytes;
}
std::vector<float>& Scratch(const float*, std::vector<uint8_t>*, std::vector<float>* floats) {
  return *floats;
}

}  // namespace

template <typename Pixel>
void Preprocessor::ResizeRow(const Pixel* pixels, int y, float* row) {
  const PixelMap& map = image_.map;
  const int stored_channels = image_.stored.channels;
  const auto at = [&](const PixelPosition& from) {
    return pixels + (int64_t{from.y} * image_.stored.width + from.x) * stored_channels;
  };
  const Pixel* in = at(StoredAt(map, y, map.right.x < 0 ? map.width - 1 : 0));
  if (map.right.x == 0) {
    std::vector<Pixel>& column = Scratch(pixels, &byte_column_, &float_column_);
    column.resize(size_t{1} * map.width * stored_channels);
    Pixel* to = column.data();
    for (int x = 0; x < map.width; ++x) {
      to = std::copy_n(at(StoredAt(map, y, x)), stored_channels, to);
    }
    in = column.data();
  }
  if (channels_ == stored_channels) {
    columns_.Resize(in, row);
    return;
  }
  grey_pixels_.resize(map.width);
  for (int x = 0; x < map.width; ++x, in += 3) grey_pixels_[x] = GreyOf(in[0], in[1], in[2]);
  columns_.Resize(grey_pixels_.data(), row);
}

void Preprocessor::MakeRow(int y, float* row) {
  const ResizeTap& tap = rows_.taps[y];
  const std::array<int, 2> wanted = {tap.low, tap.high};
  if (resized_row_y_[1] == wanted[0]) {  // the lower row of the last call is the upper one now
    std::swap(resized_rows_[0], resized_rows_[1]);
    std::swap(resized_row_y_[0], resized_row_y_[1]);
  }
  for (int i = 0; i < 2; ++i) {
    if (resized_row_y_[i] == wanted[i]) continue;
    if (image_.stored.bytes != nullptr) {
      ResizeRow(image_.stored.bytes, wanted[i], resized_rows_[i].data());
    } else {
      ResizeRow(image_.stored.floats, wanted[i], resized_rows_[i].data());
    }
    resized_row_y_[i] = wanted[i];
  }
  const float* const top = resized_rows_[0].data();
  const float* const bottom = resized_rows_[1].data();
  if (channels_ == shape_.channels) {
    BlendAndNormalize(int64_t{1} * content_.width * channels_, top, bottom, tap.weight, row);
    return;
  }
  BlendAndNormalize(content_.width, top, bottom, tap.weight, grey_row_.data());
  for (int x = 0; x < content_.width; ++x) std::fill_n(row + 3 * x, 3, grey_row_[x]);
}

PixelView ViewPixels(const Image& image) {
  CHECK_EQ(image.pixels.size(), size_t{1} * image.height * image.width * image.channels);
  return {image.height, image.width, image.channels, image.pixels.data(), nullptr};
}

void Preprocessor::MakeInputRow(int y, float* row) {
  if (!padding_row_.empty()) std::copy(padding_row_.begin(), padding_row_.end(), row);
  if (y < content_.height) MakeRow(y, row);
}

void Preprocessor::Begin(const PixelView& stored, const PixelMap& map) {
  CHECK((stored.bytes == nullptr) != (stored.floats == nullptr));
  CHECK(!HasPadding(map));
  image_ = {stored, map};
  content_ = ContentSize(shape_, {map.height, map.width});
  channels_ = std::min(stored.channels, shape_.channels);
  rows_.Fill(map.height, content_.height);
  columns_.Begin({map.width, content_.width, channels_, map.right.x < 0});
  resized_row_y_ = {-1, -1};
}

void Preprocessor::MakeShiftedRow(const Shift& shift, int y, float* row) {
  const int source_y = y - shift.y;
  if (source_y < 0 || source_y >= shape_.height) {
    std::fill_n(row, int64_t{1} * shape_.width * shape_.channels, 0.0f);
    return;
  }
  MakeInputRow(source_y, row);
  ShiftRow(shift.x, shape_.width, shape_.channels, row);
}

void Preprocessor::Run(const PixelView& image, const Shift& shift, float* out) {
  Run(image, WholeImage(image.height, image.width), shift, out);
}

void Preprocessor::Run(const PixelView& stored, const PixelMap& map, const Shift& shift,
                       float* out) {
  Begin(stored, map);
  const int64_t row_size = int64_t{1} * shape_.width * shape_.channels;
  for (int y = 0; y < shape_.height; ++y, out += row_size) MakeShiftedRow(shift, y, out);
}

void Preprocessor::RunToBytes(const PixelView& image, const Shift& shift, uint8_t* out) {
  Begin(image, WholeImage(image.height, image.width));
  const int64_t row_size = int64_t{1} * shape_.width * shape_.channels;
  input_row_.resize(row_size);
  for (int y = 0; y < shape_.height; ++y, out += row_size) {
    MakeShiftedRow(shift, y, input_row_.data());
    for (int64_t i = 0; i < row_size; ++i) {
      const float byte = (input_row_[i] + 1.0f) * (255.0f / 2.0f);
      out[i] = static_cast<uint8_t>(std::clamp(byte + 0.5f, 0.0f, 255.0f));
    }
  }
}

}  // namespace pushpull
