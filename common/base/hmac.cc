#include "common/base/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "glog/logging.h"

namespace pushpull {

std::string NewHmacKey() {
  std::string key(32, '\0');
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(key.data()), static_cast<int>(key.size())),
           1);
  return key;
}

std::string Hmac(absl::string_view key, absl::string_view data) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(data.data()), data.size(), code,
             &size) != nullptr);
  return std::string(reinterpret_cast<const char*>(code), size);
}

uint64_t ShortHmac(absl::string_view key, absl::string_view data) {
  const std::string code = Hmac(key, data);
  uint64_t value;
  std::memcpy(&value, code.data(), sizeof(value));
  return value;
}

}  // namespace pushpull
