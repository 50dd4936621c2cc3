// The identity of a certificate's holder. It is the only URI among the subject alternative names:
//
//   spiffe://pushpull/<job>/ps
//   spiffe://pushpull/<job>/worker/<first>-<last>   the worker_ids it may use; also /<id>, /any
//   spiffe://pushpull/<job>/evaluator
//   spiffe://pushpull/<job>/admin
//
// A job's name has 1 to 63 characters out of letters, digits, '.', '_' and '-'. The identity names
// worker_ids and not a worker index because a shard decides by the certificate alone and does not
// know num_clones. Worker K with M clones has the worker_ids K*M to K*M+M-1. All functions are
// thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_PEER_IDENTITY_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_PEER_IDENTITY_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/wire/role_set.h"

namespace pushpull {

absl::string_view PeerRoleName(PeerRole role);  // "ps", "worker", ...

// A range of worker_ids; `last` belongs to it. The default is all worker_ids.
struct WorkerIdRange {
  uint32_t first = 0;
  uint32_t last = std::numeric_limits<uint32_t>::max();

  bool Contains(uint32_t id) const { return first <= id && id <= last; }
  bool operator==(const WorkerIdRange&) const = default;
};

struct PeerIdentity {
  std::string job;
  PeerRole role = PeerRole::kWorker;
  WorkerIdRange worker_ids;  // meaningful for role worker only; "any" is the whole range

  bool operator==(const PeerIdentity&) const = default;
};

// INVALID_ARGUMENT: not one of the forms above. The message quotes the URI, with control characters
// escaped.
absl::StatusOr<PeerIdentity> ParsePeerIdentity(absl::string_view uri);
std::string PeerIdentityUri(const PeerIdentity& identity);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_PEER_IDENTITY_H_
