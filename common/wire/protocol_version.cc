#include "common/wire/protocol_version.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::Status CheckProtocolVersion(absl::string_view peer, uint32_t version_of_peer,
                                  absl::string_view self) {
  if (version_of_peer == kProtocolVersion) return absl::OkStatus();
  const bool peer_is_older = version_of_peer < kProtocolVersion;
  return absl::FailedPreconditionError(
      absl::StrCat(peer, " speaks protocol version ", version_of_peer, ", ", self, " speaks ",
                   kProtocolVersion, ": upgrade ", peer_is_older ? peer : self,
                   " to the release of ", peer_is_older ? self : peer));
}

}  // namespace pushpull
