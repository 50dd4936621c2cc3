// What a pull brought, one chunk after the other.
#ifndef PUSHPULL_TESTS_PS_SERVER_TRANSPORT_PULLED_BYTES_H_
#define PUSHPULL_TESTS_PS_SERVER_TRANSPORT_PULLED_BYTES_H_

#include <string>

#include "common/wire/ps_client.h"

namespace pushpull {

struct PulledBytes {
  // Lives no longer than this.
  auto sink() {
    return [this](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
      ++chunks;
      version = header.version();
      bytes.resize(bytes.size() + size_bytes);
      return bytes.data() + bytes.size() - size_bytes;
    };
  }

  int chunks = 0;
  uint64_t version = 0;  // of the last one
  std::string bytes;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_TRANSPORT_PULLED_BYTES_H_
