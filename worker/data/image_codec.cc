#include "worker/data/image_codec.h"

#include <png.h>

#include <cctype>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "worker/data/jpeg_codec.h"

namespace pushpull {
namespace {

constexpr absl::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);

absl::Status Damaged(absl::string_view name, absl::string_view format, absl::string_view reason) {
  return absl::DataLossError(
      absl::StrCat(name, ": the ", format, " data are damaged or cut off (", reason, ")"));
}

void Resize(int height, int width, int channels, Image* image) {
  image->height = height;
  image->width = width;
  image->channels = channels;
  image->pixels.resize(size_t{1} * height * width * channels);
  image->jpeg.clear();
  image->damage.clear();
}

// State for libpng's callbacks. The error handlers of libpng and libjpeg leave with longjmp, so no
// frame that longjmp leaves may hold objects with destructors.
struct PngState {
  const char* data;
  size_t size;
  size_t offset;
  char message[128];
  jmp_buf jump;
};

void PngError(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, sizeof(state->message), "%s", message);
  std::longjmp(state->jump, 1);
}

void PngWarning(png_structp, png_const_charp) {}

void PngRead(png_structp png, png_bytep out, png_size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->size - state->offset) png_error(png, "the file ends too early");
  std::memcpy(out, state->data + state->offset, count);
  state->offset += count;
}

// libpng's simplified API would change pixels and accept files without an end
// (docs/decisions/0016). Header and pixels are read in two functions, so that DecodePng can check
// sizes and allocate between them, outside the reach of longjmp. Both return false after an error
// and set state->message.
bool ReadPngHeader(png_structp png, png_infop info, PngState* state) {
  if (setjmp(state->jump) != 0) return false;
  png_read_info(png, info);
  return true;
}

bool ReadPngPixels(png_structp png, png_infop info, Image* image, PngState* state) {
  if (setjmp(state->jump) != 0) return false;
  const int color = png_get_color_type(png, info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  for (int pass = 0; pass < passes; ++pass) {
    for (int y = 0; y < image->height; ++y) {
      png_read_row(png, image->pixels.data() + row_bytes * y, nullptr);
    }
  }
  png_read_end(png, nullptr);
  return true;
}

// Reads the next number of a PGM header and advances *offset. Skips white space and comments, which
// extend from # to the end of the line. Returns -1 if there is no number or it is above 2^31.
int64_t NextPgmNumber(absl::string_view bytes, size_t* offset) {
  while (*offset < bytes.size()) {
    if (bytes[*offset] == '#') {
      while (*offset < bytes.size() && bytes[*offset] != '\n') ++*offset;
    } else if (std::isspace(static_cast<unsigned char>(bytes[*offset]))) {
      ++*offset;
    } else {
      break;
    }
  }
  int64_t value = -1;
  while (*offset < bytes.size() && std::isdigit(static_cast<unsigned char>(bytes[*offset]))) {
    value = (value < 0 ? 0 : value) * 10 + (bytes[*offset] - '0');
    if (value > (int64_t{1} << 31)) return -1;
    ++*offset;
  }
  return value;
}

}  // namespace

absl::Status CheckImageSize(int64_t height, int64_t width, absl::string_view name) {
  if (height >= 1 && width >= 1 && height <= kMaxImageSide && width <= kMaxImageSide &&
      height * width <= kMaxImagePixels) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: the image says it is %d x %d (height x width); at most %d a side and %d "
                      "pixels are accepted",
                      name, height, width, kMaxImageSide, kMaxImagePixels));
}

absl::Status DecodePng(absl::string_view bytes, absl::string_view name, Image* image) {
  PngState state{bytes.data(), bytes.size(), 0, "", {}};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, PngError, PngWarning);
  if (png == nullptr) return absl::ResourceExhaustedError("libpng: out of memory");
  png_infop info = png_create_info_struct(png);
  png_set_read_fn(png, &state, PngRead);
  // CheckImageSize refuses large images; libpng's own limits would make them look damaged.
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  absl::Status status;
  if (info == nullptr || !ReadPngHeader(png, info, &state)) {
    status = Damaged(name, "PNG", state.message);
  } else {
    const int64_t height = png_get_image_height(png, info);
    const int64_t width = png_get_image_width(png, info);
    status = CheckImageSize(height, width, name);
    if (status.ok()) {
      const bool color = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0;
      Resize(height, width, color ? 3 : 1, image);
      if (!ReadPngPixels(png, info, image, &state)) status = Damaged(name, "PNG", state.message);
    }
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return status;
}

absl::Status DecodeJpeg(absl::string_view bytes, absl::string_view name, Image* image) {
  return DecodeJpegPart(bytes, name, std::nullopt, image);
}

absl::Status DecodePgm(absl::string_view bytes, absl::string_view name, Image* image) {
  size_t offset = 2;
  const int64_t width = NextPgmNumber(bytes, &offset);
  const int64_t height = NextPgmNumber(bytes, &offset);
  const int64_t max_value = NextPgmNumber(bytes, &offset);
  if (width < 0 || height < 0 || max_value < 0) {
    return Damaged(name, "PGM", "the header must give width, height and largest value");
  }
  PP_RETURN_IF_ERROR(CheckImageSize(height, width, name));
  if (max_value < 1 || max_value > 255) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": PGM with largest value ", max_value,
                                                   "; 1 to 255 (8 bits) is supported"));
  }
  ++offset;  // exactly one white space character ends the header
  const int64_t expected = height * width;
  const int64_t got = static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(offset);
  if (got < expected) {
    return Damaged(name, "PGM",
                   absl::StrCat(expected, " bytes of pixels expected, got ", got < 0 ? 0 : got));
  }
  Resize(static_cast<int>(height), static_cast<int>(width), 1, image);
  for (int64_t i = 0; i < expected; ++i) {
    const int value = static_cast<uint8_t>(bytes[offset + i]);
    if (value > max_value) {
      return Damaged(
          name, "PGM",
          absl::StrCat("pixel ", i, " is ", value, ", the header's largest value is ", max_value));
    }
    image->pixels[i] = static_cast<uint8_t>((value * 255 + max_value / 2) / max_value);
  }
  return absl::OkStatus();
}

absl::Status DecodeImage(absl::string_view bytes, absl::string_view name, Image* image) {
  if (absl::StartsWith(bytes, kPngSignature)) return DecodePng(bytes, name, image);
  if (absl::StartsWith(bytes, "\xff\xd8")) return DecodeJpeg(bytes, name, image);
  if (absl::StartsWith(bytes, "P5")) return DecodePgm(bytes, name, image);
  if (bytes.empty()) return absl::DataLossError(absl::StrCat(name, ": the file is empty"));
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": not a PNG, JPEG or binary PGM (P5) image by its first bytes"));
}

absl::Status DecodeAllButJpeg(std::string bytes, absl::string_view name, Image* image) {
  if (!absl::StartsWith(bytes, "\xff\xd8")) return DecodeImage(bytes, name, image);
  PP_RETURN_IF_ERROR(ReadJpegHeader(bytes, name, image));
  image->pixels.clear();
  image->damage.clear();
  image->jpeg = std::move(bytes);
  image->jpeg_name = std::string(name);
  return absl::OkStatus();
}

absl::Status DecodeIfJpeg(Image* image) {
  if (image->jpeg.empty()) return absl::OkStatus();
  const std::string bytes = std::move(image->jpeg);
  return DecodeJpeg(bytes, image->jpeg_name, image);
}

}  // namespace pushpull
