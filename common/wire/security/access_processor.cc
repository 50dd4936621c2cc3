// Tested by tests/common/wire/security/access_table_test.cc.
#include "common/wire/security/access_processor.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/status_mapping.h"
#include "common/wire/security/access_table.h"
#include "common/wire/security/caller_rule.h"

namespace pushpull {
namespace {

constexpr size_t kMaxPathBytes = 120;  // longest part of a path quoted in a message

std::string RoleNames(RoleSet roles) {
  std::vector<absl::string_view> names;
  for (const PeerRole role : kPeerRoles) {
    if ((roles & Roles(role)) != 0) names.push_back(PeerRoleName(role));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, ", ");
}

absl::Status CheckCall(const grpc::AuthContext& context, absl::string_view path,
                       const std::string& job) {
  PP_ASSIGN_OR_RETURN(const PeerIdentity identity, IdentityOfPeer(context));
  if (identity.job != job) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the certificate belongs to ", PeerIdentityUri(identity), ", this server to job ", job));
  }
  if (MayCall(identity.role, path)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(absl::CHexEscape(path.substr(0, kMaxPathBytes)),
                                                  " is for ", RoleNames(RolesThatMayCall(path)),
                                                  "; the certificate belongs to ",
                                                  PeerIdentityUri(identity)));
}

}  // namespace

grpc::Status AccessProcessor::Process(const InputMetadata& auth_metadata,
                                      grpc::AuthContext* context, OutputMetadata*,
                                      OutputMetadata*) {
  const auto entry = auth_metadata.find(":path");
  const absl::string_view path =
      entry == auth_metadata.end() ? absl::string_view()
                                   : absl::string_view(entry->second.data(), entry->second.size());
  const absl::Status allowed = CheckCall(*context, path, job_);
  if (allowed.ok()) return grpc::Status::OK;
  if (const std::optional<std::string> note = refusals_.Admit(SteadyClock().Now())) {
    LOG(WARNING) << "refused a call: " << allowed.message() << *note;
  }
  return ToGrpcStatus(allowed);
}

}  // namespace pushpull
