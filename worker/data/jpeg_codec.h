// Decodes JPEG images or parts of them from memory with libjpeg-turbo. Errors of the library are
// returned as statuses; nothing exits or writes to stderr.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_JPEG_CODEC_H_
#define PUSHPULL_WORKER_DATA_JPEG_CODEC_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "worker/data/augment/pixel_map_edits.h"
#include "worker/data/image_source.h"

namespace pushpull {

// A JPEG with more scans is INVALID_ARGUMENT. Each scan passes over all pixels, but may have only a
// hundred bytes: a file of 333 kB with 2,000 scans took 12 s. Progressive images have about ten
// scans.
inline constexpr int kMaxJpegScans = 100;

// Sets height, width and channels of *image from the file's header. Errors as DecodeImage
// (image_codec.h).
absl::Status ReadJpegHeader(absl::string_view bytes, absl::string_view name, Image* image);

// Decodes the pixels of `window` into *image, which then has the window's size; without a window
// the whole image. The pixels are the same as those of the whole image. Damage after the window's
// last row is not noticed. image->damage and errors as DecodeImage. CHECKs that the window lies
// within the image.
absl::Status DecodeJpegPart(absl::string_view bytes, absl::string_view name,
                            const std::optional<PixelWindow>& window, Image* image);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_JPEG_CODEC_H_
