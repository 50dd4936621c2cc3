#include "kernels/image_block.h"

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
bool ShowsStoredPixels(const PackedImage& image) {
  const PixelMap& map = image.map;
  const PixelPosition& begin = map.shown_begin;
  const PixelPosition& end = map.shown_end;
  if (end.y <= begin.y || end.x <= begin.x) return true;
  if (begin.y < 0 || begin.x < 0 || end.y > map.height || end.x > map.width) return false;
  if (!IsOrigin(map.origin) || !IsStep(map.down) || !IsStep(map.right)) return false;
  for (const int32_t y : {begin.y, end.y - 1}) {
    for (const int32_t x : {begin.x, end.x - 1}) {
      const PixelPosition stored = StoredAt(map, y, x);
      if (!IsWithin(stored.y, image.height) || !IsWithin(stored.x, image.width)) return false;
    }
  }
  return true;
}

// Returns what is wrong with the image, or an empty string.
std::string Problem(const ImageInput& input, const PackedImage& image, int64_t bytes) {
  if (image.offset < 0 || image.offset > bytes || image.offset % kImageAlignment != 0) {
    return absl::StrCat("its pixels begin at byte ", image.offset, ", expected a multiple of ",
                        kImageAlignment, " up to ", bytes);
  }
  if (image.is_input == 0 && (!IsSide(image.height) || !IsSide(image.width) ||
                              (image.channels != 1 && image.channels != 3))) {
    return absl::StrCat(image.height, " x ", image.width, " x ", image.channels,
                        " pixels are stored, expected sides of 1 to ", kMaxSide,
                        " and 1 or 3 channels");
  }
  const int64_t needed = image.is_input != 0
                             ? input.num_elements() * static_cast<int64_t>(sizeof(float))
                             : int64_t{1} * image.height * image.width * image.channels;
  if (needed > bytes - image.offset) {
    return absl::StrCat("its ", needed, " bytes from byte ", image.offset,
                        " do not fit in the block of ", bytes, " bytes");
  }
  if (image.is_input != 0) return "";
  if (!IsSide(image.map.height) || !IsSide(image.map.width) || !ShowsStoredPixels(image)) {
    return absl::StrCat("it shows ", image.map.height, " x ", image.map.width,
                        " pixels, some of them outside of the ", image.height, " x ", image.width,
                        " stored ones");
  }
  if (image.resized_height < 1 || image.resized_height > input.height || image.resized_width < 1 ||
      image.resized_width > input.width) {
    return absl::StrCat("it is resized to ", image.resized_height, " x ", image.resized_width,
                        ", the network's input is ", input.height, " x ", input.width);
  }
  return "";
}

}  // namespace

PixelMap WholeImage(int height, int width) {
  PixelMap map = {};
  map.height = height;
  map.width = width;
  map.down = {1, 0};
  map.right = {0, 1};
  map.shown_end = {height, width};
  return map;
}

int64_t AlignedImageBytes(int64_t bytes) {
  return (bytes + kImageAlignment - 1) / kImageAlignment * kImageAlignment;
}

int64_t MaxImageBytes(int64_t input_elements) {
  return AlignedImageBytes(input_elements * static_cast<int64_t>(sizeof(float)));
}

int64_t ImageHeaderBytes(int64_t samples) {
  return AlignedImageBytes(samples * static_cast<int64_t>(sizeof(PackedImage)));
}

int64_t ImageBlockBytes(int64_t samples, int64_t input_elements) {
  return ImageHeaderBytes(samples) + samples * MaxImageBytes(input_elements);
}

absl::Status CheckPackedImages(const ImageInput& input, int64_t samples,
                               const PackedImages& block) {
  if (input.channels != 1 && input.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat("a network that reads ", input.channels,
                                                   " channels takes no images, expected 1 or 3"));
  }
  if (block.bytes < ImageHeaderBytes(samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", block.bytes, " bytes does not hold ", samples, " images"));
  }
  for (int64_t i = 0; i < samples; ++i) {
    const std::string wrong = Problem(input, block.images()[i], block.bytes);
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("image ", i, " of the batch: ", wrong));
    }
  }
  return absl::OkStatus();
}

}  // namespace pushpull
