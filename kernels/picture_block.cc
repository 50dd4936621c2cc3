#include "kernels/picture_block.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// The longest side of an image. Computations with it stay far from overflow.
constexpr int32_t kMaxSide = 1 << 24;

bool IsSide(int32_t side) { return side >= 1 && side <= kMaxSide; }

bool IsWithin(int32_t value, int32_t end) { return value >= 0 && value < end; }

// The origin may lie outside of the stored image (in the padding), but no valid one lies farther
// away than this bound, below which StoredAt cannot overflow.
bool IsOrigin(const PixelPosition& origin) {
  return std::max(std::abs(int64_t{origin.y}), std::abs(int64_t{origin.x})) <= 4 * kMaxSide;
}

bool IsStep(const PixelPosition& step) {
  return step.y >= -1 && step.y <= 1 && step.x >= -1 && step.x <= 1;
}

// Whether all shown pixels are stored ones. Checking the four corners is enough since the map is
// linear.
bool ShowsStoredPixels(const PackedPicture& picture) {
  const PixelMap& map = picture.map;
  const PixelPosition& begin = map.shown_begin;
  const PixelPosition& end = map.shown_end;
  if (end.y <= begin.y || end.x <= begin.x) return true;
  if (begin.y < 0 || begin.x < 0 || end.y > map.height || end.x > map.width) return false;
  if (!IsOrigin(map.origin) || !IsStep(map.down) || !IsStep(map.right)) return false;
  for (const int32_t y : {begin.y, end.y - 1}) {
    for (const int32_t x : {begin.x, end.x - 1}) {
      const PixelPosition stored = StoredAt(map, y, x);
      if (!IsWithin(stored.y, picture.height) || !IsWithin(stored.x, picture.width)) return false;
    }
  }
  return true;
}

// Returns what is wrong with the image, or an empty string.
std::string WhatIsWrong(const PictureInput& input, const PackedPicture& picture, int64_t bytes) {
  if (picture.offset < 0 || picture.offset > bytes || picture.offset % kPictureAlignment != 0) {
    return absl::StrCat("its pixels begin at byte ", picture.offset, ", expected a multiple of ",
                        kPictureAlignment, " up to ", bytes);
  }
  if (picture.is_input == 0 && (!IsSide(picture.height) || !IsSide(picture.width) ||
                                (picture.channels != 1 && picture.channels != 3))) {
    return absl::StrCat(picture.height, " x ", picture.width, " x ", picture.channels,
                        " pixels are stored, expected sides of 1 to ", kMaxSide,
                        " and 1 or 3 channels");
  }
  const int64_t needed = picture.is_input != 0
                             ? input.num_elements() * static_cast<int64_t>(sizeof(float))
                             : int64_t{1} * picture.height * picture.width * picture.channels;
  if (needed > bytes - picture.offset) {
    return absl::StrCat("its ", needed, " bytes from byte ", picture.offset,
                        " do not fit in the block of ", bytes, " bytes");
  }
  if (picture.is_input != 0) return "";
  if (!IsSide(picture.map.height) || !IsSide(picture.map.width) || !ShowsStoredPixels(picture)) {
    return absl::StrCat("it shows ", picture.map.height, " x ", picture.map.width,
                        " pixels, some of them outside of the ", picture.height, " x ",
                        picture.width, " stored ones");
  }
  if (picture.resized_height < 1 || picture.resized_height > input.height ||
      picture.resized_width < 1 || picture.resized_width > input.width) {
    return absl::StrCat("it is resized to ", picture.resized_height, " x ", picture.resized_width,
                        ", the network's input is ", input.height, " x ", input.width);
  }
  return "";
}

}  // namespace

PixelMap WholePicture(int height, int width) {
  PixelMap map = {};
  map.height = height;
  map.width = width;
  map.down = {1, 0};
  map.right = {0, 1};
  map.shown_end = {height, width};
  return map;
}

int64_t AlignedPictureBytes(int64_t bytes) {
  return (bytes + kPictureAlignment - 1) / kPictureAlignment * kPictureAlignment;
}

int64_t MaxPictureBytes(int64_t input_elements) {
  return AlignedPictureBytes(input_elements * static_cast<int64_t>(sizeof(float)));
}

int64_t PictureHeaderBytes(int64_t samples) {
  return AlignedPictureBytes(samples * static_cast<int64_t>(sizeof(PackedPicture)));
}

int64_t PictureBlockBytes(int64_t samples, int64_t input_elements) {
  return PictureHeaderBytes(samples) + samples * MaxPictureBytes(input_elements);
}

absl::Status CheckPackedPictures(const PictureInput& input, int64_t samples,
                                 const PackedPictures& block) {
  if (input.channels != 1 && input.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat("a network that reads ", input.channels,
                                                   " channels takes no pictures, expected 1 or 3"));
  }
  if (block.bytes < PictureHeaderBytes(samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", block.bytes, " bytes does not hold ", samples, " pictures"));
  }
  for (int64_t i = 0; i < samples; ++i) {
    const std::string wrong = WhatIsWrong(input, block.pictures()[i], block.bytes);
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("picture ", i, " of the batch: ", wrong));
    }
  }
  return absl::OkStatus();
}

}  // namespace pushpull
