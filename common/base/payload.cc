// Tested by tests/common/wire/grpc/chunk_message_test.cc.
#include "common/base/payload.h"

#include "common/base/crc32c.h"

namespace pushpull {

uint32_t Crc32cOf(const Payload& payload) {
  return payload.crc32c.has_value() ? *payload.crc32c : Crc32c(payload.data, payload.size_bytes);
}

}  // namespace pushpull
