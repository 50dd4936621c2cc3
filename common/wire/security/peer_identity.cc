#include "common/wire/security/peer_identity.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

constexpr absl::string_view kPrefix = "spiffe://pushpull/";
constexpr absl::string_view kAny = "any";
constexpr size_t kMaxJobBytes = 63;

bool IsJobName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxJobBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

// SimpleAtoi alone would also accept signs and spaces.
bool ParseId(absl::string_view text, uint32_t* id) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, id);
}

bool ParseRange(absl::string_view text, WorkerIdRange* range) {
  if (text == kAny) {
    *range = WorkerIdRange();
    return true;
  }
  const size_t dash = text.find('-');
  const absl::string_view first = text.substr(0, dash);
  const absl::string_view last = dash == absl::string_view::npos ? first : text.substr(dash + 1);
  return ParseId(first, &range->first) && ParseId(last, &range->last) &&
         range->first <= range->last;
}

}  // namespace

absl::string_view PeerRoleName(PeerRole role) {
  switch (role) {
    case PeerRole::kPs:
      return "ps";
    case PeerRole::kWorker:
      return "worker";
    case PeerRole::kEvaluator:
      return "evaluator";
    case PeerRole::kAdmin:
      return "admin";
  }
  return "unknown";
}

absl::StatusOr<PeerIdentity> ParsePeerIdentity(absl::string_view uri) {
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(uri.substr(0, 200)),
      "\" is not an identity: expected spiffe://pushpull/<job>/ps, /worker/<first>-<last>, "
      "/worker/any, /evaluator or /admin"));
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, kPrefix)) return bad;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() < 2 || !IsJobName(parts[0])) return bad;
  PeerIdentity identity;
  identity.job = std::string(parts[0]);
  for (const PeerRole role : kPeerRoles) {
    if (parts[1] != PeerRoleName(role)) continue;
    identity.role = role;
    if (role != PeerRole::kWorker)
      return parts.size() == 2 ? identity : absl::StatusOr<PeerIdentity>(bad);
    if (parts.size() != 3 || !ParseRange(parts[2], &identity.worker_ids)) return bad;
    return identity;
  }
  return bad;
}

std::string PeerIdentityUri(const PeerIdentity& identity) {
  std::string uri = absl::StrCat(kPrefix, identity.job, "/", PeerRoleName(identity.role));
  if (identity.role != PeerRole::kWorker) return uri;
  const WorkerIdRange& ids = identity.worker_ids;
  if (ids == WorkerIdRange()) return absl::StrCat(uri, "/", kAny);
  if (ids.first == ids.last) return absl::StrCat(uri, "/", ids.first);
  return absl::StrCat(uri, "/", ids.first, "-", ids.last);
}

}  // namespace pushpull
