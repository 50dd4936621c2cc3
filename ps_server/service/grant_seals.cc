#include "ps_server/service/grant_seals.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "common/hmac.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

uint64_t SealOf(const std::string& key, uint32_t worker_id, uint32_t slot, uint64_t grant) {
  char data[16];
  std::memcpy(data, &worker_id, 4);
  std::memcpy(data + 4, &slot, 4);
  std::memcpy(data + 8, &grant, 8);
  return ShortHmac(key, absl::string_view(data, sizeof(data)));
}

}  // namespace

void GrantSeals::SetKey(std::string key) {
  absl::MutexLock lock(&mutex_);
  key_ = std::move(key);
}

std::string GrantSeals::key() const {
  absl::MutexLock lock(&mutex_);
  return key_;
}

void GrantSeals::Seal(uint32_t worker_id, ps::SlotGrant* grant) const {
  grant->set_seal(SealOf(key(), worker_id, grant->slot(), grant->grant()));
}

absl::Status GrantSeals::Check(uint32_t worker_id, uint32_t slot, uint64_t grant,
                               uint64_t seal) const {
  const std::string key = this->key();
  if (!key.empty() && seal == SealOf(key, worker_id, slot, grant)) return absl::OkStatus();
  return ProtocolError(
      ps::ErrorDetail::FENCED, 0, 0,
      absl::StrFormat("worker %d does not hold this grant of slot %d", worker_id, slot));
}

}  // namespace pushpull
