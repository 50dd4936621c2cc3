#include "ps_server/runtime/grant_mac.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "common/base/hmac.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

uint64_t MacOf(const std::string& key, uint32_t worker_id, uint32_t replica, uint64_t grant) {
  char data[16];
  std::memcpy(data, &worker_id, 4);
  std::memcpy(data + 4, &replica, 4);
  std::memcpy(data + 8, &grant, 8);
  return ShortHmac(key, absl::string_view(data, sizeof(data)));
}

}  // namespace

void GrantMac::SetKey(std::string key) {
  absl::MutexLock lock(&mutex_);
  key_ = std::move(key);
}

std::string GrantMac::key() const {
  absl::MutexLock lock(&mutex_);
  return key_;
}

void GrantMac::Sign(uint32_t worker_id, ps::ReplicaGrant* grant) const {
  grant->set_mac(MacOf(key(), worker_id, grant->replica(), grant->grant()));
}

absl::Status GrantMac::Check(uint32_t worker_id, uint32_t replica, uint64_t grant,
                             uint64_t mac) const {
  const std::string key = this->key();
  if (!key.empty() && mac == MacOf(key, worker_id, replica, grant)) return absl::OkStatus();
  return ProtocolError(
      ps::ErrorDetail::FENCED, 0, 0,
      absl::StrFormat("clone %d does not hold this grant of replica %d", worker_id, replica));
}

}  // namespace pushpull
