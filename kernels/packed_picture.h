// Pictures of a batch as the host hands them to a device, which crops, mirrors, resizes and
// normalises them itself (Operators::SamplePictures). A plain block of bytes:
//
//   PackedPicture[samples]   what to read and how
//   pixels                   of each picture, at its offset
//
// What a network reads at (y, x) is found by going back through what was done to the picture: the
// shift, the resize (kernels/picture_math.h), then the map from the edited picture to the pixels
// that are stored.
#ifndef PUSHPULL_KERNELS_PACKED_PICTURE_H_
#define PUSHPULL_KERNELS_PACKED_PICTURE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/picture_math.h"

namespace pushpull {

struct PixelPosition {
  int32_t y;
  int32_t x;
};

// An edited picture: each of its pixels is one of the stored ones, or the padding's colour.
struct PixelMap {
  int32_t height;  // of the edited picture
  int32_t width;
  // Its pixel (y, x) is the stored one at origin + y * down + x * right.
  PixelPosition origin;
  PixelPosition down;
  PixelPosition right;
  // Where that holds: begin.y <= y < end.y, the same for x. Elsewhere the colour.
  PixelPosition shown_begin;
  PixelPosition shown_end;
  float colour[3];  // 0 to 255; one for each stored channel
};

// The stored pixel that the edited picture's (y, x) stands for, where it is shown.
PUSHPULL_HOST_DEVICE inline PixelPosition StoredAt(const PixelMap& map, int32_t y, int32_t x) {
  return {map.origin.y + y * map.down.y + x * map.right.y,
          map.origin.x + y * map.down.x + x * map.right.x};
}

struct PackedPicture {
  int64_t offset;  // of the pixels, from the beginning of the block
  int32_t height;  // as stored: uint8 [height, width, channels]
  int32_t width;
  int32_t channels;  // 1 or 3
  // Not 0: there is nothing left to do. The pixels are float32 [input height, width, channels], as
  // the network reads them, and what follows means nothing.
  int32_t is_input;
  PixelMap map;
  // The part of the network's input that the picture fills, from the upper left corner.
  int32_t resized_height;
  int32_t resized_width;
  PixelPosition shift;  // of the whole input; what moves in is 0 after normalisation
};

// Of the network.
struct PictureInput {
  int32_t height;
  int32_t width;
  int32_t channels;  // 1 or 3
  float padding[3];  // 0 to 255, where the picture does not fill the input
  int64_t num_elements() const { return int64_t{1} * height * width * channels; }
};

// The value of the edited picture at (y, x), 0 to 255, with the channels of the network.
template <int kChannels>
PUSHPULL_HOST_DEVICE inline void ReadEditedPixel(const PackedPicture& picture,
                                                 const uint8_t* pixels, int32_t y, int32_t x,
                                                 float out[kChannels]) {
  const PixelMap& map = picture.map;
  const bool is_grey = picture.channels == 1;
  float stored[3];
  if (y >= map.shown_begin.y && y < map.shown_end.y && x >= map.shown_begin.x &&
      x < map.shown_end.x) {
    const PixelPosition from = StoredAt(map, y, x);
    const uint8_t* const at =
        pixels + (int64_t{from.y} * picture.width + from.x) * picture.channels;
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

// What the network reads at (y, x). `block` is that of the picture.
template <int kChannels>
PUSHPULL_HOST_DEVICE inline void SamplePicture(const PictureInput& input,
                                               const PackedPicture& picture, const void* block,
                                               int32_t y, int32_t x, float out[kChannels]) {
  const char* const begin = static_cast<const char*>(block) + picture.offset;
  if (picture.is_input != 0) {
    const float* const at = reinterpret_cast<const float*>(begin) +
                            (static_cast<int64_t>(y) * input.width + x) * kChannels;
    for (int c = 0; c < kChannels; ++c) out[c] = at[c];
    return;
  }
  const int32_t source_y = y - picture.shift.y;
  const int32_t source_x = x - picture.shift.x;
  if (source_y < 0 || source_y >= input.height || source_x < 0 || source_x >= input.width) {
    for (int c = 0; c < kChannels; ++c) out[c] = 0.0f;
    return;
  }
  if (source_y >= picture.resized_height || source_x >= picture.resized_width) {
    for (int c = 0; c < kChannels; ++c) out[c] = NormalizedPixel(input.padding[c]);
    return;
  }
  const uint8_t* const pixels = reinterpret_cast<const uint8_t*>(begin);
  const ResizeTap rows = ResizeTapOf(source_y, picture.map.height, picture.resized_height);
  const ResizeTap columns = ResizeTapOf(source_x, picture.map.width, picture.resized_width);
  float top[kChannels];
  ReadEditedPixel<kChannels>(picture, pixels, rows.low, columns.low, top);
  if (rows.weight == 0.0f && columns.weight == 0.0f) {
    for (int c = 0; c < kChannels; ++c) out[c] = NormalizedPixel(top[c]);
    return;
  }
  float top_right[kChannels], bottom[kChannels], bottom_right[kChannels];
  ReadEditedPixel<kChannels>(picture, pixels, rows.low, columns.high, top_right);
  ReadEditedPixel<kChannels>(picture, pixels, rows.high, columns.low, bottom);
  ReadEditedPixel<kChannels>(picture, pixels, rows.high, columns.high, bottom_right);
  for (int c = 0; c < kChannels; ++c) {
    out[c] =
        NormalizedPixel(Between(Between(top[c], top_right[c], columns.weight),
                                Between(bottom[c], bottom_right[c], columns.weight), rows.weight));
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PACKED_PICTURE_H_
