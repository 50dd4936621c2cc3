// The input is a PNG, JPEG or PGM file.
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_encoder.h"
#include "worker/data/jpeg_codec.h"

namespace pushpull {
namespace {

constexpr size_t kSmallImageBytes = 4096;

// Decodes a part of a JPEG that decodes whole. Its pixels are compared in jpeg_codec_test.cc, on
// files whose blocks are not damaged.
void CheckPart(absl::string_view input, const Image& whole) {
  const PixelWindow window{whole.height / 3, whole.width / 3, (whole.height + 2) / 3,
                           (whole.width + 2) / 3};
  Image part;
  CHECK(DecodeJpegPart(input, "part", window, &part).ok());
  CheckImage(part);
  CHECK(part.height == window.height && part.width == window.width);
}

void Run(absl::string_view input) {
  Image image;
  const absl::Status status = DecodeImage(input, "fuzz", &image);
  if (!status.ok()) {
    CHECK(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
    return;
  }
  CheckImage(image);
  CHECK(image.height <= kMaxImageSide && image.width <= kMaxImageSide);
  if (input.substr(0, 2) == "\xff\xd8") CheckPart(input, image);
  if (image.pixels.size() > kSmallImageBytes) return;
  std::string png;
  CHECK(EncodePng(image, &png).ok());
  Image again;
  CHECK(DecodeImage(png, "again", &again).ok());
  CHECK(again.pixels == image.pixels && again.width == image.width);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}
