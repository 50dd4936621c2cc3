#include "worker/data/png_encoder.h"

#include <png.h>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<std::string> ToPng(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = image.width;
  png.height = image.height;
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (!png_image_write_to_memory(&png, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr)) {
    return absl::InternalError(absl::StrCat("the PNG cannot be written: ", png.message));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace pushpull
