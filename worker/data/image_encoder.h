// Encodes images as PNG and JPEG into memory. Errors of the libraries are returned as statuses;
// nothing exits or writes to stderr.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_
#define PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_

#include <string>

#include "absl/status/status.h"

#include "worker/data/image_source.h"

namespace pushpull {

// Replaces *bytes with a PNG file, grey for one channel and RGB for three. After an error *bytes is
// empty. INVALID_ARGUMENT: the image has no pixels or more than image_codec.h allows, its number of
// channels is not 1 or 3, or image.pixels does not have the size that follows from its shape.
// INTERNAL: libpng failed.
absl::Status EncodePng(const Image& image, std::string* bytes);

// Replaces *bytes with a baseline JPEG file. INVALID_ARGUMENT: as EncodePng, or `quality` is not
// within 1 to 100. INTERNAL: libjpeg failed. After an error *bytes is empty.
absl::Status EncodeJpeg(const Image& image, int quality, std::string* bytes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_ENCODER_H_
