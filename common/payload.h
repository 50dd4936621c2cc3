// A read-only run of bytes with shared ownership: a slice received from the network, a piece of a
// mapped file, or plain memory. Copying shares, never copies, the bytes. The address need not be
// aligned.
#ifndef PUSHPULL_COMMON_PAYLOAD_H_
#define PUSHPULL_COMMON_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace pushpull {

struct Payload {
  std::shared_ptr<const void> owner;  // keeps data alive; null when the caller guarantees that
  const char* data = nullptr;
  size_t size_bytes = 0;
  // CRC32C of the bytes here, by whoever put them in this place and had them in the cache anyway.
  std::optional<uint32_t> crc32c = std::nullopt;
};

// The CRC32C of the payload's bytes: the known one, or computed now.
uint32_t Crc32cOf(const Payload& payload);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_PAYLOAD_H_
