// Who a certificate says that its holder is. One URI among its subject alternative names:
//
//   spiffe://pushpull/<job>/ps
//   spiffe://pushpull/<job>/worker/<first>-<last>   the worker_ids it may speak for; also <id>, any
//   spiffe://pushpull/<job>/evaluator
//   spiffe://pushpull/<job>/admin
//
// A job's name is 1 to 63 letters, digits, '.', '_' and '-'. worker_ids, not a worker index: a
// shard has to decide from the certificate alone, and it never learns num_clones. Worker K with M
// clones has K*M to K*M+M-1. Free functions and values, thread-safe.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_PEER_IDENTITY_H_
#define PUSHPULL_COMMON_RPC_SECURITY_PEER_IDENTITY_H_

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

enum class PeerRole : uint8_t { kPs, kWorker, kEvaluator, kAdmin };
inline constexpr std::array<PeerRole, 4> kPeerRoles = {PeerRole::kPs, PeerRole::kWorker,
                                                       PeerRole::kEvaluator, PeerRole::kAdmin};
absl::string_view PeerRoleName(PeerRole role);  // "ps", "worker", ...

// Both ends belong to it.
struct WorkerIdRange {
  uint32_t first = 0;
  uint32_t last = std::numeric_limits<uint32_t>::max();

  bool Contains(uint32_t id) const { return first <= id && id <= last; }
  bool operator==(const WorkerIdRange&) const = default;
};

struct PeerIdentity {
  std::string job;
  PeerRole role = PeerRole::kWorker;
  WorkerIdRange worker_ids;  // of role worker; all of them for "any"

  bool operator==(const PeerIdentity&) const = default;
};

// INVALID_ARGUMENT: not one of the forms above, quoted with control characters escaped.
absl::StatusOr<PeerIdentity> ParsePeerIdentity(absl::string_view uri);
std::string PeerIdentityUri(const PeerIdentity& identity);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_PEER_IDENTITY_H_
