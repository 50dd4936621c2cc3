// SHA-256 (FIPS 180-4), computed by libcrypto.
#ifndef PUSHPULL_COMMON_BASE_SHA256_H_
#define PUSHPULL_COMMON_BASE_SHA256_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

// Computes a digest piece by piece. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size_bytes);
  // Returns the digest as 64 hex digits. Call it once; nothing may follow.
  std::string FinishHex();

 private:
  void* context_;  // EVP_MD_CTX, owned
};

// Returns the digest of `data` as 64 hex digits.
std::string Sha256Hex(absl::string_view data);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_SHA256_H_
