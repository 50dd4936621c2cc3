// Contents of files and encoded images for the tests of worker/data.
#ifndef PUSHPULL_TESTS_TESTKIT_DATA_DATA_TEST_UTIL_H_
#define PUSHPULL_TESTS_TESTKIT_DATA_DATA_TEST_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "worker/data/image_source.h"

namespace pushpull {

// A file that everybody can open and whose first byte cannot be read: EIO, since nothing is mapped
// at address 0.
inline constexpr char kFileWithIoError[] = "/proc/self/mem";

std::string Gzip(absl::string_view bytes);

// An IDX file: magic number, dimensions, data.
std::string Idx(uint32_t magic, const std::vector<uint32_t>& dims, absl::string_view data);
// IDX files of n images of height x width, whose pixel i is i mod 251, and of n labels, whose label
// i is i mod num_classes.
std::string IdxImages(uint32_t n, uint32_t height, uint32_t width);
std::string IdxLabels(uint32_t n, int num_classes);

// An image whose pixels vary with place and channel.
Image MakeImage(int height, int width, int channels);
std::string EncodePng(const Image& image);
std::string EncodeJpeg(const Image& image, int quality = 95);
std::string EncodePgm(const Image& image);
// Returns the file with an end marker in the middle of its last scan. It decodes, with a warning
// about a "premature end of data segment".
std::string EndJpegEarly(std::string jpeg);

// A source in memory. Example i has `height` x `width` x `channels` pixels with the value i mod
// 256, and the label i mod classes. Get fails with DATA_LOSS for `bad_index`.
class FakeSource final : public ImageSource {
 public:
  FakeSource(int64_t size, int height, int width, int channels, int num_classes);

  int64_t size() const override { return size_; }
  int num_classes() const override { return num_classes_; }
  std::string describe() const override { return "fake"; }
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool*, StoppedFn) const override { return absl::OkStatus(); }

  int64_t bad_index = -1;

 private:
  const int64_t size_;
  const int height_;
  const int width_;
  const int channels_;
  const int num_classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_DATA_DATA_TEST_UTIL_H_
