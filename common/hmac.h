// HMAC-SHA256 (RFC 2104) and its keys, by libcrypto.
#ifndef PUSHPULL_COMMON_HMAC_H_
#define PUSHPULL_COMMON_HMAC_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// 32 bytes that nobody can guess.
std::string NewHmacKey();

// The code, 32 bytes.
std::string Hmac(absl::string_view key, absl::string_view data);

// The first 8 bytes of the code, little endian.
uint64_t ShortHmac(absl::string_view key, absl::string_view data);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_HMAC_H_
