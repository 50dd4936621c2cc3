// Tested by tests/common/wire/security/access_table_test.cc.
#include "common/wire/security/caller_rule.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<PeerIdentity> IdentityOfPeer(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  if (uris.size() != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("the peer's certificate names ", uris.size(), " identities, expected one"));
  }
  absl::StatusOr<PeerIdentity> identity =
      ParsePeerIdentity(absl::string_view(uris[0].data(), uris[0].size()));
  if (!identity.ok()) return absl::UnauthenticatedError(identity.status().message());
  return identity;
}

CallerRule CallerRule::OfPeer(const grpc::ServerContextBase& context) {
  CallerRule rule;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  absl::StatusOr<PeerIdentity> identity =
      peer == nullptr ? absl::UnauthenticatedError("no certificate") : IdentityOfPeer(*peer);
  if (!identity.ok()) {
    rule.nobody_ = true;
  } else if (identity->role == PeerRole::kWorker) {
    rule.worker_ = *std::move(identity);
  }
  return rule;
}

absl::Status CallerRule::CheckWorkerId(uint32_t worker_id) const {
  if (nobody_) {
    return absl::PermissionDeniedError(absl::StrCat(
        "worker_id ", worker_id, " in the message, but the peer's certificate has no identity"));
  }
  if (!worker_.has_value() || worker_->worker_ids.Contains(worker_id)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "worker_id ", worker_id, " in the message, but the certificate belongs to ",
      PeerIdentityUri(*worker_),
      "; worker_id is worker_index * num_clones + clone: do both fit the certificate?"));
}

}  // namespace pushpull
