// Images as PNG files in memory, for data sets that hold bare pixels.
#ifndef PUSHPULL_WORKER_DATA_PNG_ENCODER_H_
#define PUSHPULL_WORKER_DATA_PNG_ENCODER_H_

#include <string>

#include "absl/status/statusor.h"

#include "worker/data/image_source.h"

namespace pushpull {

// Grey for one channel, RGB for three. Thread-safe. INTERNAL: libpng's reason.
absl::StatusOr<std::string> ToPng(const Image& image);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_PNG_ENCODER_H_
