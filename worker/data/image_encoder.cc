#include "worker/data/image_encoder.h"

#include <png.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "worker/data/image_codec.h"
#include "worker/data/jpeg_state.h"

namespace pushpull {
namespace {

absl::Status CheckImage(const Image& image) {
  const int64_t pixels = int64_t{image.height} * image.width;
  if (image.height < 1 || image.width < 1 || image.height > kMaxImageSide ||
      image.width > kMaxImageSide || pixels > kMaxImagePixels) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cannot encode an image of %d x %d pixels (height x width): 1 to %d a side and at most %d "
        "pixels are accepted",
        image.height, image.width, kMaxImageSide, kMaxImagePixels));
  }
  if (image.channels != 1 && image.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat("cannot encode an image with ", image.channels,
                                                   " channels: 1 (grey) or 3 (RGB) are accepted"));
  }
  if (static_cast<int64_t>(image.pixels.size()) != pixels * image.channels) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cannot encode an image of %d x %d x %d (height, width, channels) from %d bytes, %d "
        "expected",
        image.height, image.width, image.channels, image.pixels.size(), pixels * image.channels));
  }
  return absl::OkStatus();
}

struct JpegBytes {
  unsigned char* buffer;  // allocated by libjpeg with malloc; freed by EncodeJpeg
  unsigned long size;
};

bool WriteJpeg(jpeg_compress_struct* jpeg, const Image& image, int quality, JpegBytes* bytes,
               JpegState* state) {
  if (setjmp(state->jump) != 0) return false;
  jpeg_create_compress(jpeg);
  jpeg_mem_dest(jpeg, &bytes->buffer, &bytes->size);
  jpeg->image_height = image.height;
  jpeg->image_width = image.width;
  jpeg->input_components = image.channels;
  jpeg->in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(jpeg);
  jpeg_set_quality(jpeg, quality, TRUE);
  jpeg_start_compress(jpeg, TRUE);
  const size_t row_bytes = size_t{1} * image.width * image.channels;
  while (jpeg->next_scanline < jpeg->image_height) {
    // libjpeg does not write to its input; the row type merely lacks the const.
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data() + row_bytes * jpeg->next_scanline);
    jpeg_write_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_compress(jpeg);
  return true;
}

}  // namespace

absl::Status EncodePng(const Image& image, std::string* bytes) {
  bytes->clear();
  PP_RETURN_IF_ERROR(CheckImage(image));
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = image.height;
  png.width = image.width;
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  bytes->resize(size);
  const bool written = png_image_write_to_memory(&png, bytes->data(), &size, /*convert_to_8_bit=*/0,
                                                 image.pixels.data(), /*row_stride=*/0,
                                                 /*colormap=*/nullptr) != 0;
  bytes->resize(written ? size : 0);
  bytes->shrink_to_fit();
  if (written) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("libpng cannot encode the image: ", png.message));
}

absl::Status EncodeJpeg(const Image& image, int quality, std::string* bytes) {
  bytes->clear();
  PP_RETURN_IF_ERROR(CheckImage(image));
  if (quality < 1 || quality > 100) {
    return absl::InvalidArgumentError(absl::StrCat("JPEG quality ", quality, " is outside 1..100"));
  }
  JpegState state{};
  JpegBytes written_bytes{};
  jpeg_compress_struct jpeg{};
  jpeg.err = jpeg_std_error(&state.manager);
  state.manager.error_exit = JpegFail;
  state.manager.output_message = JpegSilence;
  const bool written = WriteJpeg(&jpeg, image, quality, &written_bytes, &state);
  if (written)
    bytes->assign(reinterpret_cast<const char*>(written_bytes.buffer), written_bytes.size);
  jpeg_destroy_compress(&jpeg);
  std::free(written_bytes.buffer);
  if (written) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("libjpeg cannot encode the image: ", state.message));
}

}  // namespace pushpull
