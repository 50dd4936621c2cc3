// A read-only range of bytes with shared ownership: a slice received from the network, a part of a
// mapped file, or plain memory. Copying a Payload shares the bytes, it does not copy them. The
// address may be unaligned.
#ifndef PUSHPULL_COMMON_BASE_PAYLOAD_H_
#define PUSHPULL_COMMON_BASE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace pushpull {

struct Payload {
  std::shared_ptr<const void> owner;  // keeps `data` alive; null: the caller guarantees its life
  const char* data = nullptr;
  size_t size_bytes = 0;
  // CRC32C of the bytes, if the code that wrote them here computed it while they were in the cache.
  std::optional<uint32_t> crc32c = std::nullopt;
};

// Returns the CRC32C of the payload's bytes: payload.crc32c if it is set, otherwise computed now.
uint32_t Crc32cOf(const Payload& payload);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_PAYLOAD_H_
