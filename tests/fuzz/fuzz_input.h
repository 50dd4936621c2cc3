// Helpers of the fuzz targets. In many targets the first bytes choose a mode, so that the fuzzer
// gets past checksums: one mode uses the bytes as they are, the others put correct checksums around
// them.
#ifndef PUSHPULL_TESTS_FUZZ_FUZZ_INPUT_H_
#define PUSHPULL_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "worker/data/image_source.h"

namespace pushpull {

inline absl::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Removes and returns the first byte. Returns 0 at the end of the input.
inline uint8_t TakeByte(absl::string_view* input) {
  if (input->empty()) return 0;
  const auto byte = static_cast<uint8_t>(input->front());
  input->remove_prefix(1);
  return byte;
}

// Removes and returns up to `size` bytes.
inline absl::string_view TakeBytes(absl::string_view* input, size_t size) {
  const absl::string_view taken = input->substr(0, size);
  input->remove_prefix(taken.size());
  return taken;
}

// A file in memory.
class FuzzFile final : public ReadableFile {
 public:
  explicit FuzzFile(std::string bytes) : bytes_(std::move(bytes)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
    CHECK_GE(offset, 0);
    CHECK_GE(size, 0);
    if (offset > size_bytes() - size) return absl::OutOfRangeError("past the end");
    if (size > 0) std::memcpy(destination, bytes_.data() + offset, size);
    return absl::OkStatus();
  }
  absl::StatusOr<Payload> Map() const override {
    return Payload{nullptr, bytes_.data(), bytes_.size()};
  }

 private:
  const std::string bytes_;
};

// Aborts unless the image has the properties of every decoded image.
inline void CheckImage(const Image& image) {
  CHECK_GE(image.height, 1);
  CHECK_GE(image.width, 1);
  CHECK(image.channels == 1 || image.channels == 3) << image.channels;
  CHECK_EQ(image.pixels.size(), size_t{1} * image.height * image.width * image.channels);
}

// Aborts unless the box has the properties that CheckBox and the readers promise for usable boxes.
inline void CheckUsableBox(const Box& box) {
  CHECK(box.ymin >= 0 && box.ymin < box.ymax && box.ymax <= 1) << box.ymin << " " << box.ymax;
  CHECK(box.xmin >= 0 && box.xmin < box.xmax && box.xmax <= 1) << box.xmin << " " << box.xmax;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_FUZZ_FUZZ_INPUT_H_
