#include "worker/data/image_packer.h"

#include <cstring>

#include "glog/logging.h"

namespace pushpull {
namespace {

// Copies the rows of a window without gaps between them.
void CopyWindow(const PixelView& from, const PixelWindow& window, char* to) {
  const int64_t from_row = int64_t{1} * from.width * from.channels;
  const int64_t row = int64_t{1} * window.width * from.channels;
  const uint8_t* in = from.bytes + window.y * from_row + int64_t{1} * window.x * from.channels;
  if (row == from_row) {
    std::memcpy(to, in, window.height * row);
    return;
  }
  for (int y = 0; y < window.height; ++y, in += from_row, to += row) std::memcpy(to, in, row);
}

}  // namespace

ImagePacker::ImagePacker(const InputShape& shape, int64_t max_samples, void* data)
    : shape_(shape), max_samples_(max_samples), data_(static_cast<char*>(data)) {}

void ImagePacker::Begin(int64_t samples) {
  CHECK_LE(samples, max_samples_);
  used_.store(ImageHeaderBytes(samples));
}

int64_t ImagePacker::Take(int64_t bytes) { return used_.fetch_add(AlignedImageBytes(bytes)); }

void ImagePacker::Add(int64_t sample, const Shift& shift, EditableImage* image,
                      Preprocessor* preprocessor) {
  PackedImage packed = {};
  const PixelView stored = image->Stored();
  // An image that shows only padding stores one pixel that is never read, since the sizes of a
  // packed image must be above 0.
  PixelWindow window = ShownPixels(image->map());
  if (window.height == 0) window = {0, 0, 1, 1};
  const int64_t bytes = int64_t{1} * window.height * window.width * stored.channels;
  if (stored.bytes == nullptr || bytes > MaxImageBytes(shape_.num_elements())) {
    packed.is_input = 1;
    packed.offset = Take(shape_.num_elements() * static_cast<int64_t>(sizeof(float)));
    const PixelView pixels = image->ViewWithoutPadding();
    preprocessor->Run(pixels, image->map(), shift, reinterpret_cast<float*>(data_ + packed.offset));
  } else {
    packed.offset = Take(bytes);
    CopyWindow(stored, window, data_ + packed.offset);
    packed.height = window.height;
    packed.width = window.width;
    packed.channels = stored.channels;
    packed.map = image->map();
    MoveOrigin(window, &packed.map);
    const ImageSize content = ContentSize(shape_, {packed.map.height, packed.map.width});
    packed.resized_height = content.height;
    packed.resized_width = content.width;
    packed.shift = {shift.y, shift.x};
  }
  std::memcpy(data_ + sample * static_cast<int64_t>(sizeof(packed)), &packed, sizeof(packed));
}

}  // namespace pushpull
