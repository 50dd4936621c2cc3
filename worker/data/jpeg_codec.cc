#include "worker/data/jpeg_codec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "worker/data/image_codec.h"
#include "worker/data/jpeg_state.h"

namespace pushpull {
namespace {

// Makes an error of a file that is cut off, as TensorFlow and PyTorch do. Keeps the first warning
// about other lost image data: libjpeg goes on after those and delivers every row. Further
// warnings, such as extra bytes between markers, are common and harmless.
void JpegMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  auto* state = reinterpret_cast<JpegState*>(info->err);
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
      JpegFail(info);
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      if (state->warning[0] == '\0') (*info->err->format_message)(info, state->warning);
      break;
    default:
      break;
  }
}

bool HasTooManyScans(const jpeg_decompress_struct& jpeg) {
  return jpeg.input_scan_number > kMaxJpegScans;
}

// For jpeg_progress_mgr::progress_monitor. libjpeg calls it at each row of blocks of each scan of
// an image that has several, before any pixel is delivered.
void LimitScans(j_common_ptr info) {
  if (!HasTooManyScans(*reinterpret_cast<j_decompress_ptr>(info))) return;
  std::longjmp(reinterpret_cast<JpegState*>(info->err)->jump, 1);
}

bool ReadHeader(jpeg_decompress_struct* jpeg, absl::string_view bytes, jpeg_progress_mgr* progress,
                JpegState* state) {
  if (setjmp(state->jump) != 0) return false;
  jpeg_create_decompress(jpeg);
  progress->progress_monitor = LimitScans;
  jpeg->progress = progress;
  jpeg_mem_src(jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(jpeg, TRUE);
  return true;
}

// Decodes whole rows [width, channels] to `pixels`.
bool ReadPixels(jpeg_decompress_struct* jpeg, uint8_t* pixels, size_t row_bytes, JpegState* state) {
  if (setjmp(state->jump) != 0) return false;
  jpeg_start_decompress(jpeg);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = pixels + row_bytes * jpeg->output_scanline;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

// Decodes the window to `pixels`, [window.height, window.width, channels]. `scratch` holds a row of
// the image. The columns are widened by a block of pixels that are coded together, because
// libjpeg's smooth enlargement of the colours reads neighbours and treats the edges of what it
// decodes as edges of the image.
bool ReadWindow(jpeg_decompress_struct* jpeg, const PixelWindow& window, int channels,
                uint8_t* scratch, uint8_t* pixels, JpegState* state) {
  if (setjmp(state->jump) != 0) return false;
  jpeg_start_decompress(jpeg);
  const int block = jpeg->max_h_samp_factor * DCTSIZE;
  const int image_width = static_cast<int>(jpeg->output_width);
  JDIMENSION left = std::max(0, window.x - block);
  JDIMENSION width = std::min(image_width, window.x + window.width + block) - left;
  // libjpeg moves `left` to the beginning of a block.
  if (width < jpeg->output_width) jpeg_crop_scanline(jpeg, &left, &width);
  if (window.y > 0) jpeg_skip_scanlines(jpeg, window.y);
  const size_t row_bytes = size_t{1} * window.width * channels;
  const uint8_t* const first = scratch + (size_t{1} * window.x - left) * channels;
  for (int y = 0; y < window.height; ++y) {
    JSAMPROW row = scratch;
    jpeg_read_scanlines(jpeg, &row, 1);
    std::copy_n(first, row_bytes, pixels + row_bytes * y);
  }
  return true;
}

class Decoder {
 public:
  Decoder() {
    jpeg_.err = jpeg_std_error(&state_.manager);
    state_.manager.error_exit = JpegFail;
    state_.manager.emit_message = JpegMessage;
    state_.manager.output_message = JpegSilence;
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  absl::Status Open(absl::string_view bytes, absl::string_view name, Image* image) {
    if (!ReadHeader(&jpeg_, bytes, &progress_, &state_)) return Failed(name);
    if (jpeg_.num_components != 1 && jpeg_.num_components != 3) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": JPEG with ", jpeg_.num_components,
          " components (CMYK?); only grey and colour (RGB, YCbCr) are supported: convert it"));
    }
    PP_RETURN_IF_ERROR(CheckImageSize(jpeg_.image_height, jpeg_.image_width, name));
    jpeg_.out_color_space = jpeg_.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    image->height = static_cast<int>(jpeg_.image_height);
    image->width = static_cast<int>(jpeg_.image_width);
    image->channels = jpeg_.num_components;
    return absl::OkStatus();
  }

  // Decodes the window, or the whole image, after Open.
  absl::Status Read(absl::string_view name, const std::optional<PixelWindow>& window,
                    Image* image) {
    const size_t row_bytes = size_t{1} * image->width * image->channels;
    const PixelWindow whole{0, 0, image->height, image->width};
    if (!window.has_value() || *window == whole) {
      image->pixels.resize(row_bytes * image->height);
      return ReadPixels(&jpeg_, image->pixels.data(), row_bytes, &state_) ? absl::OkStatus()
                                                                          : Failed(name);
    }
    CHECK(window->y >= 0 && window->x >= 0 && window->height > 0 && window->width > 0);
    CHECK(window->y + window->height <= image->height && window->x + window->width <= image->width);
    std::vector<uint8_t> row(row_bytes);
    image->height = window->height;
    image->width = window->width;
    image->pixels.resize(size_t{1} * window->height * window->width * image->channels);
    return ReadWindow(&jpeg_, *window, image->channels, row.data(), image->pixels.data(), &state_)
               ? absl::OkStatus()
               : Failed(name);
  }

  // Returns what Image::damage is to say after Read.
  std::string Damage(absl::string_view name) const {
    if (state_.warning[0] == '\0') return "";
    return absl::StrCat(name, ": the JPEG data are damaged (", state_.warning, ")");
  }

 private:
  absl::Status Failed(absl::string_view name) const {
    if (HasTooManyScans(jpeg_)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": JPEG with more than ", kMaxJpegScans,
                       " scans, where progressive images have about 10: encode it again"));
    }
    return absl::DataLossError(
        absl::StrCat(name, ": the JPEG data are damaged or cut off (", state_.message, ")"));
  }

  JpegState state_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct jpeg_{};
};

}  // namespace

absl::Status ReadJpegHeader(absl::string_view bytes, absl::string_view name, Image* image) {
  return Decoder().Open(bytes, name, image);
}

absl::Status DecodeJpegPart(absl::string_view bytes, absl::string_view name,
                            const std::optional<PixelWindow>& window, Image* image) {
  Decoder decoder;
  image->jpeg.clear();
  image->damage.clear();
  PP_RETURN_IF_ERROR(decoder.Open(bytes, name, image));
  PP_RETURN_IF_ERROR(decoder.Read(name, window, image));
  image->damage = decoder.Damage(name);
  return absl::OkStatus();
}

}  // namespace pushpull
