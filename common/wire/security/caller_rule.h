// Checks that the worker_id in a message belongs to the caller. Whether the caller's role may call
// the method at all has been checked before (access_table.h).
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_CALLER_RULE_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_CALLER_RULE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/wire/security/peer_identity.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace pushpull {

// The identity in the peer's certificate, which the TLS handshake has verified. UNAUTHENTICATED:
// the certificate has no identity, several, or a malformed one. Thread-safe.
absl::StatusOr<PeerIdentity> IdentityOfPeer(const grpc::AuthContext& context);

// The rule for one call. A copyable value; thread-safe, because it does not change.
class CallerRule {
 public:
  // For plaintext, where the caller is unknown: every worker_id passes.
  static CallerRule Anybody() { return CallerRule(); }
  // For TLS: a worker may use the worker_ids of its certificate, other roles may use all, and a
  // peer without an identity may use none.
  static CallerRule OfPeer(const grpc::ServerContextBase& context);

  // PERMISSION_DENIED: the caller may not use this worker_id. The message names it and the
  // identity.
  absl::Status CheckWorkerId(uint32_t worker_id) const;

  // Checks the worker_id of a request, which may be a field of the request or of its `key`.
  // Requests without a worker_id pass. So do those of administrators, who may name any clone's
  // worker_id.
  template <typename Request>
  absl::Status Check(const Request& request) const {
    if constexpr (requires { request.worker_id(); }) {
      return CheckWorkerId(request.worker_id());
    } else if constexpr (requires { request.key().worker_id(); }) {
      return CheckWorkerId(request.key().worker_id());
    } else {
      return absl::OkStatus();
    }
  }

 private:
  CallerRule() = default;

  bool nobody_ = false;                 // no worker_id passes
  std::optional<PeerIdentity> worker_;  // if set, only this worker's worker_ids pass
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_CALLER_RULE_H_
