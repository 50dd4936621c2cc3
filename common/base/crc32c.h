// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of push and pull chunks, checkpoint
// tensors and records.
//
// Pure functions, so thread-safe. The fastest way that the processor has is chosen at run time
// (crc32c_methods.h): carry-less multiplication of vectors, the instruction of SSE4.2 or ARMv8 on
// three interleaved streams, or a table.
#ifndef PUSHPULL_COMMON_BASE_CRC32C_H_
#define PUSHPULL_COMMON_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace pushpull {

// Returns the checksum of A followed by `data`, where `crc` is the checksum of A. The checksum of
// an empty A is 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size_bytes);

inline uint32_t Crc32c(const void* data, size_t size_bytes) {
  return ExtendCrc32c(0, data, size_bytes);
}
inline uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data.data(), data.size()); }

// Copies size_bytes from `from` to `to` and returns ExtendCrc32c(crc, to, size_bytes), in one pass.
// The checksum is that of the bytes written, even if those at `from` change meanwhile.
uint32_t CopyAndExtendCrc32c(uint32_t crc, const char* from, size_t size_bytes, char* to);
inline uint32_t CopyWithCrc32c(const char* from, size_t size_bytes, char* to) {
  return CopyAndExtendCrc32c(0, from, size_bytes, to);
}

// Record files store the masked checksum (as TensorFlow and leveldb do), because the plain CRC of
// data that itself contains CRCs detects errors poorly.
inline uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
inline uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_CRC32C_H_
