// HMAC-SHA256 (RFC 2104) and its keys, computed by libcrypto. Thread-safe.
#ifndef PUSHPULL_COMMON_BASE_HMAC_H_
#define PUSHPULL_COMMON_BASE_HMAC_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Returns 32 bytes from libcrypto's cryptographic random generator. Ends the process if the
// generator fails.
std::string NewHmacKey();

// Returns the MAC of `data`, 32 bytes.
std::string Hmac(absl::string_view key, absl::string_view data);

// Returns the first 8 bytes of the MAC as a little-endian number.
uint64_t ShortHmac(absl::string_view key, absl::string_view data);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_HMAC_H_
