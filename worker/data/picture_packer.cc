#include "worker/data/picture_packer.h"

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

PicturePacker::PicturePacker(const InputShape& shape, int64_t max_samples, void* data)
    : shape_(shape), max_samples_(max_samples), data_(static_cast<char*>(data)) {}

void PicturePacker::Begin(int64_t samples) {
  CHECK_LE(samples, max_samples_);
  used_.store(PictureHeaderBytes(samples));
}

int64_t PicturePacker::Take(int64_t bytes) { return used_.fetch_add(AlignedPictureBytes(bytes)); }

void PicturePacker::Add(int64_t sample, const Shift& shift, EditableImage* image,
                        Preprocessor* preprocessor) {
  PackedPicture picture = {};
  const PixelView stored = image->Stored();
  // An image that shows only padding stores one pixel that is never read, since the sizes of a
  // packed image must be above 0.
  PixelWindow window = ShownPixels(image->map());
  if (window.height == 0) window = {0, 0, 1, 1};
  const int64_t bytes = int64_t{1} * window.height * window.width * stored.channels;
  if (stored.bytes == nullptr || bytes > MaxPictureBytes(shape_.num_elements())) {
    picture.is_input = 1;
    picture.offset = Take(shape_.num_elements() * static_cast<int64_t>(sizeof(float)));
    preprocessor->Run(image->View(), shift, reinterpret_cast<float*>(data_ + picture.offset));
  } else {
    picture.offset = Take(bytes);
    CopyWindow(stored, window, data_ + picture.offset);
    picture.height = window.height;
    picture.width = window.width;
    picture.channels = stored.channels;
    picture.map = image->map();
    MoveOrigin(window, &picture.map);
    const ImageSize content = ContentSize(shape_, {picture.map.height, picture.map.width});
    picture.resized_height = content.height;
    picture.resized_width = content.width;
    picture.shift = {shift.y, shift.x};
  }
  std::memcpy(data_ + sample * static_cast<int64_t>(sizeof(picture)), &picture, sizeof(picture));
}

}  // namespace pushpull
