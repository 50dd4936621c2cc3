// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of push and pull chunks, checkpoint
// tensors and records. SSE4.2 with three interleaved streams where the build allows it, else a
// table. Pure functions.
#ifndef PUSHPULL_COMMON_CRC32C_H_
#define PUSHPULL_COMMON_CRC32C_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace pushpull {

// Checksum of the bytes `crc` was computed of, followed by these. Start with crc = 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size_bytes);

inline uint32_t Crc32c(const void* data, size_t size_bytes) {
  return ExtendCrc32c(0, data, size_bytes);
}
inline uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data.data(), data.size()); }

// Copies and returns the checksum of the copy, computed while it is still in the cache; `crc` as
// above.
uint32_t CopyAndExtendCrc32c(uint32_t crc, const char* from, size_t size_bytes, char* to);
inline uint32_t CopyWithCrc32c(const char* from, size_t size_bytes, char* to) {
  return CopyAndExtendCrc32c(0, from, size_bytes, to);
}

// As stored in record files: a checksum of data that contains checksums is weak without it.
inline uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
inline uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

// The table version, on every machine; the same answer as ExtendCrc32c.
uint32_t ExtendCrc32cPortable(uint32_t crc, const void* data, size_t size_bytes);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CRC32C_H_
