#include "worker/data/augment/editable_image.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace pushpull {

template <typename Edit>
void EditableImage::EditPixels(const Edit& edit) {
  if (is_float_) {
    edit(&floats_, &float_scratch_);
  } else {
    edit(&bytes_, &byte_scratch_);
  }
}

void EditableImage::Take(Image* image) {
  height_ = image->height;
  width_ = image->width;
  channels_ = image->channels;
  is_float_ = false;
  std::swap(bytes_, image->pixels);
}

void EditableImage::MirrorColumns() {
  EditPixels([this](auto* pixels, auto*) {
    for (int y = 0; y < height_; ++y) {
      auto* const row = pixels->data() + int64_t{1} * y * width_ * channels_;
      for (int left = 0, right = width_ - 1; left < right; ++left, --right) {
        std::swap_ranges(row + left * channels_, row + (left + 1) * channels_,
                         row + right * channels_);
      }
    }
  });
}

void EditableImage::MirrorRows() {
  EditPixels([this](auto* pixels, auto*) {
    const int64_t row = int64_t{1} * width_ * channels_;
    for (int top = 0, bottom = height_ - 1; top < bottom; ++top, --bottom) {
      std::swap_ranges(pixels->begin() + top * row, pixels->begin() + (top + 1) * row,
                       pixels->begin() + bottom * row);
    }
  });
}

void EditableImage::RotateCounterClockwise() {
  EditPixels([this](auto* pixels, auto* scratch) {
    scratch->resize(pixels->size());
    auto* out = scratch->data();
    // Row r of the result is column width - 1 - r of the image.
    for (int column = width_ - 1; column >= 0; --column) {
      for (int y = 0; y < height_; ++y) {
        const auto* const in = pixels->data() + (int64_t{1} * y * width_ + column) * channels_;
        out = std::copy_n(in, channels_, out);
      }
    }
    std::swap(*pixels, *scratch);
  });
  std::swap(height_, width_);
}

void EditableImage::Crop(const PixelWindow& window) {
  CHECK(window.y >= 0 && window.x >= 0 && window.height > 0 && window.width > 0);
  CHECK(window.y + window.height <= height_ && window.x + window.width <= width_);
  EditPixels([&](auto* pixels, auto*) {
    auto* out = pixels->data();
    const int64_t row = int64_t{1} * window.width * channels_;
    for (int y = 0; y < window.height; ++y, out += row) {
      const auto* const in =
          pixels->data() + (int64_t{1} * (window.y + y) * width_ + window.x) * channels_;
      std::copy(in, in + row, out);  // never to behind its source
    }
    pixels->resize(window.height * row);
  });
  height_ = window.height;
  width_ = window.width;
}

void EditableImage::Pad(int new_height, int new_width, int y, int x,
                        const std::array<float, 3>& colour) {
  CHECK(y >= 0 && x >= 0 && y + height_ <= new_height && x + width_ <= new_width);
  EditPixels([&](auto* pixels, auto* scratch) {
    using Pixel = typename std::decay_t<decltype(*pixels)>::value_type;
    scratch->resize(size_t{1} * new_height * new_width * channels_);
    for (size_t i = 0; i < scratch->size(); ++i) {
      (*scratch)[i] = static_cast<Pixel>(colour[i % channels_]);
    }
    const int64_t row = int64_t{1} * width_ * channels_;
    for (int r = 0; r < height_; ++r) {
      std::copy_n(pixels->data() + r * row, row,
                  scratch->data() + (int64_t{1} * (y + r) * new_width + x) * channels_);
    }
    std::swap(*pixels, *scratch);
  });
  height_ = new_height;
  width_ = new_width;
}

std::array<float, 3> EditableImage::MeanColour() const {
  std::array<double, 3> sums{};
  const int64_t count = num_values();
  for (int64_t i = 0; i < count; ++i) {
    sums[i % channels_] += is_float_ ? floats_[i] : static_cast<float>(bytes_[i]);
  }
  std::array<float, 3> mean{};
  for (int c = 0; c < channels_; ++c) {
    mean[c] = static_cast<float>(sums[c] / (static_cast<double>(height_) * width_));
  }
  return mean;
}

std::vector<float>& EditableImage::Floats() {
  if (!is_float_) {
    floats_.assign(bytes_.begin(), bytes_.begin() + num_values());
    is_float_ = true;
  }
  return floats_;
}

PixelView EditableImage::View() const {
  PixelView view;
  view.height = height_;
  view.width = width_;
  view.channels = channels_;
  view.bytes = is_float_ ? nullptr : bytes_.data();
  view.floats = is_float_ ? floats_.data() : nullptr;
  return view;
}

}  // namespace pushpull
