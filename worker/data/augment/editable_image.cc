#include "worker/data/augment/editable_image.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

#include "worker/data/jpeg_codec.h"

namespace pushpull {

void EditableImage::Take(Image* image) {
  stored_height_ = image->height;
  stored_width_ = image->width;
  channels_ = image->channels;
  map_ = WholeImage(stored_height_, stored_width_);
  is_float_ = false;
  status_ = absl::OkStatus();
  std::swap(bytes_, image->pixels);
  encoded_.jpeg = std::move(image->jpeg);
  encoded_.jpeg_name = std::move(image->jpeg_name);
  image->jpeg.clear();
}

absl::Status EditableImage::Decode() {
  if (encoded_.jpeg.empty()) return status_;
  PixelWindow window = ShownPixels(map_);
  if (window.height == 0) window = {0, 0, 1, 1};  // only padding is shown
  std::swap(encoded_.pixels, bytes_);             // so that the memory is reused
  const std::string bytes = std::move(encoded_.jpeg);
  status_ = DecodeJpegPart(bytes, encoded_.jpeg_name, window, &encoded_);
  std::swap(encoded_.pixels, bytes_);
  encoded_.jpeg.clear();
  stored_height_ = window.height;
  stored_width_ = window.width;
  MoveOrigin(window, &map_);
  if (!status_.ok()) bytes_.assign(size_t{1} * stored_height_ * stored_width_ * channels_, 0);
  return status_;
}

void EditableImage::AddColourChannels() {
  Decode().IgnoreError();  // the caller of Decode gets it
  const auto repeat = [this](const auto& from, auto* to) {
    const int64_t pixels = int64_t{1} * stored_height_ * stored_width_;
    to->resize(3 * pixels);
    for (int64_t i = 0; i < pixels; ++i) std::fill_n(to->begin() + 3 * i, 3, from[i]);
  };
  if (is_float_) {
    repeat(floats_, &float_scratch_);
    std::swap(floats_, float_scratch_);
  } else {
    repeat(bytes_, &byte_scratch_);
    std::swap(bytes_, byte_scratch_);
  }
  map_.colour[1] = map_.colour[2] = map_.colour[0];
  channels_ = 3;
}

void EditableImage::Pad(int new_height, int new_width, int y, int x,
                        const std::array<float, 3>& colour) {
  if (HasPadding(map_)) Arrange();  // a map holds only one padding colour
  const bool is_grey = colour[0] == colour[1] && colour[1] == colour[2];
  if (channels_ == 1 && !is_grey) AddColourChannels();
  std::array<float, 3> stored = colour;
  if (!is_float_) {
    for (float& value : stored) value = static_cast<float>(static_cast<uint8_t>(value));
  }
  pushpull::Pad(new_height, new_width, y, x, stored, &map_);
}

template <typename Pixel>
void EditableImage::ArrangeInto(const std::vector<Pixel>& from, std::vector<Pixel>* to) const {
  to->resize(num_values());
  if (HasPadding(map_)) {
    for (size_t i = 0; i < to->size(); ++i) {
      (*to)[i] = static_cast<Pixel>(map_.colour[i % channels_]);
    }
  }
  const int64_t row_step = int64_t{1} * map_.right.y * stored_width_ + map_.right.x;
  for (int y = map_.shown_begin.y; y < map_.shown_end.y; ++y) {
    const PixelPosition first = StoredAt(map_, y, map_.shown_begin.x);
    const Pixel* in = from.data() + (int64_t{first.y} * stored_width_ + first.x) * channels_;
    Pixel* out = to->data() + (int64_t{1} * y * map_.width + map_.shown_begin.x) * channels_;
    const int shown = map_.shown_end.x - map_.shown_begin.x;
    if (row_step == 1) {
      std::copy_n(in, int64_t{1} * shown * channels_, out);
      continue;
    }
    for (int x = 0; x < shown; ++x, in += row_step * channels_) {
      out = std::copy_n(in, channels_, out);
    }
  }
}

void EditableImage::Arrange() {
  Decode().IgnoreError();  // the caller of Decode gets it
  if (IsWholeImage(map_, stored_height_, stored_width_)) return;
  if (is_float_) {
    ArrangeInto(floats_, &float_scratch_);
    std::swap(floats_, float_scratch_);
  } else {
    ArrangeInto(bytes_, &byte_scratch_);
    std::swap(bytes_, byte_scratch_);
  }
  stored_height_ = map_.height;
  stored_width_ = map_.width;
  map_ = WholeImage(stored_height_, stored_width_);
}

std::array<float, 3> EditableImage::MeanColour() {
  Arrange();
  std::array<double, 3> sums{};
  const int64_t count = num_values();
  for (int64_t i = 0; i < count; ++i) {
    sums[i % channels_] += is_float_ ? floats_[i] : static_cast<float>(bytes_[i]);
  }
  std::array<float, 3> mean{};
  for (int c = 0; c < channels_; ++c) {
    mean[c] = static_cast<float>(sums[c] / (static_cast<double>(height()) * width()));
  }
  if (channels_ == 1) mean[1] = mean[2] = mean[0];
  return mean;
}

std::vector<float>& EditableImage::Floats() {
  Arrange();
  if (!is_float_) {
    floats_.assign(bytes_.begin(), bytes_.begin() + num_values());
    is_float_ = true;
  }
  return floats_;
}

PixelView EditableImage::View() {
  Arrange();
  return Stored();
}

PixelView EditableImage::ViewWithoutPadding() {
  if (HasPadding(map_)) Arrange();
  Decode().IgnoreError();  // the caller of Decode gets it
  return Stored();
}

PixelView EditableImage::Stored() const {
  CHECK(encoded_.jpeg.empty());
  PixelView view;
  view.height = stored_height_;
  view.width = stored_width_;
  view.channels = channels_;
  view.bytes = is_float_ ? nullptr : bytes_.data();
  view.floats = is_float_ ? floats_.data() : nullptr;
  return view;
}

}  // namespace pushpull
