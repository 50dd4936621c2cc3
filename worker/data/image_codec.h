// Decodes PNG, JPEG and binary PGM images from memory. Errors of the libraries are returned as
// statuses; nothing exits or writes to stderr.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "worker/data/image_source.h"

namespace pushpull {

// Larger images are refused, so that a bad header cannot make the decoder allocate huge buffers.
inline constexpr int kMaxImageSide = 32768;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// Decodes an image file into *image, whose memory is reused. Recognises the format by the first
// bytes; `name` is used in messages only. Grey images get one channel, all others three (RGB).
// Alpha is dropped, 16-bit PNG is reduced to the high bytes, and the orientation in a JPEG's EXIF
// data is ignored.
//
// A JPEG whose data are damaged, but which is not cut off, decodes as in TensorFlow and PyTorch:
// lost pixels are grey or wrong, and image->damage says what the decoder noticed. Since JPEG has no
// checksums, other damage that still decodes is not noticed.
//
// DATA_LOSS: `bytes` is empty, truncated, or damaged in another way. INVALID_ARGUMENT: the format
// or the variant of it is not supported, or the image is too large.
absl::Status DecodeImage(absl::string_view bytes, absl::string_view name, Image* image);

// Does the same, except that a JPEG stays encoded in image->jpeg, and image->pixels is empty. Its
// header is read and checked, and gives the size; damage after it is not noticed here, so
// image->damage is empty.
absl::Status DecodeAllButJpeg(std::string bytes, absl::string_view name, Image* image);

// Decodes an image that DecodeAllButJpeg left encoded; does nothing with another one. DATA_LOSS: it
// is damaged.
absl::Status DecodeIfJpeg(Image* image);

// INVALID_ARGUMENT: an image of this size is not accepted.
absl::Status CheckImageSize(int64_t height, int64_t width, absl::string_view name);

// Decode one format each; otherwise as DecodeImage. DecodePgm skips the first two bytes unread.
absl::Status DecodePng(absl::string_view bytes, absl::string_view name, Image* image);
absl::Status DecodeJpeg(absl::string_view bytes, absl::string_view name, Image* image);
absl::Status DecodePgm(absl::string_view bytes, absl::string_view name, Image* image);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_
