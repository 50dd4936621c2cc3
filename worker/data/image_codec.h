// Decodes PNG, JPEG and binary PGM from memory. Errors come back as statuses: no exit, no message
// on stderr.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "worker/data/image_source.h"

namespace pushpull {

// Bounds against images that claim more memory than any data set needs.
inline constexpr int kMaxImageSide = 32768;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// The format is told by the first bytes, not by the name; `name` is for messages. Grey images give
// one channel, all others RGB; alpha is dropped, 16-bit PNG is cut to its high byte, JPEG
// orientation (EXIF) is ignored. Thread-safe. DATA_LOSS: truncated or damaged (a JPEG has no
// checksums: damage that still decodes is not seen); INVALID_ARGUMENT: another format, or a variant
// that is not supported.
absl::Status DecodeImage(absl::string_view bytes, absl::string_view name, Image* image);

// One format each; as above.
absl::Status DecodePng(absl::string_view bytes, absl::string_view name, Image* image);
absl::Status DecodeJpeg(absl::string_view bytes, absl::string_view name, Image* image);
absl::Status DecodePgm(absl::string_view bytes, absl::string_view name, Image* image);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CODEC_H_
