// Collects the chunks of a pull into one string.
#ifndef PUSHPULL_TESTS_TESTKIT_PULLED_BYTES_H_
#define PUSHPULL_TESTS_TESTKIT_PULLED_BYTES_H_

#include <string>

#include "common/wire/ps_client.h"

namespace pushpull {

struct PulledBytes {
  // The sink must not outlive this object.
  auto sink() {
    return [this](const ps::PullChunk& header, size_t size_bytes) -> absl::StatusOr<char*> {
      ++chunks;
      version = header.version();
      bytes.resize(bytes.size() + size_bytes);
      return bytes.data() + bytes.size() - size_bytes;
    };
  }

  int chunks = 0;
  uint64_t version = 0;  // the version of the last chunk
  std::string bytes;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_PULLED_BYTES_H_
