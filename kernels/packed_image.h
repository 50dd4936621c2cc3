// The images of a batch as the host hands them to a device, which crops, mirrors, resizes and
// normalises them itself (Operators::SampleImages). They are a plain block of bytes:
//
//   PackedImage[samples]   says for each image what to read and how
//   pixels                   those of each image at its `offset`
//
// The editing steps are not run one after the other. Instead, each pixel of the network's input is
// traced back to stored pixels:
//
//   input (y, x)  --shift-->  resized image  --resize-->  edited image  --PixelMap-->  stored image
//
// The resize reads four edited pixels (kernels/image_math.h). The edited image is the one before
// the resize: cropped, mirrored, rotated and padded. All types are plain values.
// Tested by tests/kernels/image_block_test.cc.
// Tested by tests/worker/data/image_packer_test.cc.
// Tested by tests/kernels/cuda/images_test.cc.
#ifndef PUSHPULL_KERNELS_PACKED_IMAGE_H_
#define PUSHPULL_KERNELS_PACKED_IMAGE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/image_math.h"

namespace pushpull {

struct PixelPosition {
  int32_t y;
  int32_t x;
};

// Describes an edited image: each of its pixels is a stored pixel or has the padding's colour.
struct PixelMap {
  int32_t height;  // of the edited image
  int32_t width;
  // Pixel (y, x) of the edited image is the stored pixel at origin + y * down + x * right.
  PixelPosition origin;
  PixelPosition down;
  PixelPosition right;
  // That holds for shown_begin.y <= y < shown_end.y, and the same for x. All other pixels have the
  // colour below.
  PixelPosition shown_begin;
  PixelPosition shown_end;
  float colour[3];  // 0 to 255; one entry for each stored channel
};

// Returns the stored pixel that is shown at (y, x) of the edited image.
PUSHPULL_HOST_DEVICE inline PixelPosition StoredAt(const PixelMap& map, int32_t y, int32_t x) {
  return {map.origin.y + y * map.down.y + x * map.right.y,
          map.origin.x + y * map.down.x + x * map.right.x};
}

struct PackedImage {
  int64_t offset;  // of the pixels, in bytes from the beginning of the block
  // The stored pixels are uint8 [height, width, channels].
  int32_t height;
  int32_t width;
  int32_t channels;  // 1 or 3
  // If not 0, the host has done all the work: the pixels are float32 [input.height, input.width,
  // input.channels], as the network reads them, and all other fields but `offset` are ignored.
  int32_t is_input;
  PixelMap map;
  // The size that the edited image is resized to. It fills this part of the network's input from
  // the upper left corner.
  int32_t resized_height;
  int32_t resized_width;
  // The whole input is moved down and right by this. Pixels that move in are 0 after normalisation.
  PixelPosition shift;
};

// Describes the network's input.
struct ImageInput {
  int32_t height;
  int32_t width;
  int32_t channels;  // 1 or 3
  float padding[3];  // 0 to 255; the colour where the image does not fill the input
  int64_t num_elements() const { return int64_t{1} * height * width * channels; }
};

// Reads the edited image at (y, x): values of 0 to 255, converted to the network's channels.
template <int kChannels>
PUSHPULL_HOST_DEVICE inline void ReadEditedPixel(const PackedImage& image, const uint8_t* pixels,
                                                 int32_t y, int32_t x, float out[kChannels]) {
  const PixelMap& map = image.map;
  const bool is_grey = image.channels == 1;
  float stored[3];
  if (y >= map.shown_begin.y && y < map.shown_end.y && x >= map.shown_begin.x &&
      x < map.shown_end.x) {
    const PixelPosition from = StoredAt(map, y, x);
    const uint8_t* const at = pixels + (int64_t{from.y} * image.width + from.x) * image.channels;
    for (int c = 0; c < 3; ++c) stored[c] = static_cast<float>(is_grey ? at[0] : at[c]);
  } else {
    for (int c = 0; c < 3; ++c) stored[c] = is_grey ? map.colour[0] : map.colour[c];
  }
  if (kChannels == 1 && !is_grey) {
    out[0] = GreyOf(stored[0], stored[1], stored[2]);
  } else {
    for (int c = 0; c < kChannels; ++c) out[c] = stored[c];
  }
}

// Computes what the network reads at (y, x). `block` is the block that holds the image.
template <int kChannels>
PUSHPULL_HOST_DEVICE inline void SampleImage(const ImageInput& input, const PackedImage& image,
                                             const void* block, int32_t y, int32_t x,
                                             float out[kChannels]) {
  const char* const begin = static_cast<const char*>(block) + image.offset;
  if (image.is_input != 0) {
    const float* const at = reinterpret_cast<const float*>(begin) +
                            (static_cast<int64_t>(y) * input.width + x) * kChannels;
    for (int c = 0; c < kChannels; ++c) out[c] = at[c];
    return;
  }
  const int32_t source_y = y - image.shift.y;
  const int32_t source_x = x - image.shift.x;
  if (source_y < 0 || source_y >= input.height || source_x < 0 || source_x >= input.width) {
    for (int c = 0; c < kChannels; ++c) out[c] = 0.0f;
    return;
  }
  if (source_y >= image.resized_height || source_x >= image.resized_width) {
    for (int c = 0; c < kChannels; ++c) out[c] = NormalizedPixel(input.padding[c]);
    return;
  }
  const uint8_t* const pixels = reinterpret_cast<const uint8_t*>(begin);
  const ResizeTap rows = ResizeTapOf(source_y, image.map.height, image.resized_height);
  const ResizeTap columns = ResizeTapOf(source_x, image.map.width, image.resized_width);
  float top[kChannels];
  ReadEditedPixel<kChannels>(image, pixels, rows.low, columns.low, top);
  if (rows.weight == 0.0f && columns.weight == 0.0f) {
    for (int c = 0; c < kChannels; ++c) out[c] = NormalizedPixel(top[c]);
    return;
  }
  float top_right[kChannels], bottom[kChannels], bottom_right[kChannels];
  ReadEditedPixel<kChannels>(image, pixels, rows.low, columns.high, top_right);
  ReadEditedPixel<kChannels>(image, pixels, rows.high, columns.low, bottom);
  ReadEditedPixel<kChannels>(image, pixels, rows.high, columns.high, bottom_right);
  for (int c = 0; c < kChannels; ++c) {
    out[c] =
        NormalizedPixel(Between(Between(top[c], top_right[c], columns.weight),
                                Between(bottom[c], bottom_right[c], columns.weight), rows.weight));
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PACKED_IMAGE_H_
