// Encodes images as PNG and JPEG into memory. Errors come back as statuses: no exit, no message on
// stderr.
//
// Thread rule: thread-safe.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_
#define PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_

#include <string>

#include "absl/status/status.h"

#include "worker/data/image_source.h"

namespace pushpull {

// Lossless. One channel gives a grey file, three an RGB one. *bytes is replaced, and left empty by
// an error. INVALID_ARGUMENT: no or too many pixels (image_codec.h gives the bounds), other numbers
// of channels, or a buffer of another size than the image says. INTERNAL: libpng's own error.
absl::Status EncodePng(const Image& image, std::string* bytes);

// Baseline JPEG; 1 <= quality <= 100, otherwise INVALID_ARGUMENT. As above.
absl::Status EncodeJpeg(const Image& image, int quality, std::string* bytes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_
