#include "ps_server/core/restore_point.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

std::set<VersionId> HeldBy(const ps::ShardStateReply& shard, const std::string& run_id) {
  std::set<VersionId> held;
  if (shard.run_id() != run_id) return held;
  for (const ps::HeldVersion& version : shard.held()) {
    held.insert({version.epoch(), version.version()});
  }
  return held;
}

bool IsAsNewAs(const VersionId& id, const std::optional<VersionId>& checkpoint) {
  if (!checkpoint.has_value() || id == *checkpoint) return true;
  return id.version > checkpoint->version && id.epoch >= checkpoint->epoch;
}

// Returns why the shard's newest version is not used, or an empty string if its number is lower
// than that of the restore point.
std::string WhyNotUsed(size_t shard, const VersionId& newest, const RestorePoint& point,
                       const std::optional<VersionId>& checkpoint) {
  if (newest == point.id || newest.version < point.id.version) return "";
  std::string text =
      absl::StrFormat("shard %d holds version %d of epoch %d, which is not used: ", shard,
                      newest.version, newest.epoch);
  if (IsAsNewAs(newest, checkpoint)) return text + "not every shard holds it";
  absl::StrAppendFormat(&text, "the newest checkpoint is of step %d and was published in epoch %d",
                        checkpoint->version, checkpoint->epoch);
  if (newest.epoch < checkpoint->epoch) {
    text += ", so the version belongs to an older history";
  }
  return text;
}

}  // namespace

RestorePoint ChooseRestorePoint(const std::string& run_id,
                                const std::vector<ps::ShardStateReply>& shards,
                                std::optional<VersionId> checkpoint, uint64_t known_version) {
  std::vector<std::set<VersionId>> held;
  for (const ps::ShardStateReply& shard : shards) held.push_back(HeldBy(shard, run_id));

  RestorePoint point;
  if (checkpoint.has_value()) {
    point.source = ps::RestoreRequest::CHECKPOINT;
    point.id = *checkpoint;
  }
  for (const VersionId& id : held.empty() ? std::set<VersionId>() : held[0]) {
    const bool held_by_all =
        std::all_of(held.begin(), held.end(), [&](const auto& other) { return other.count(id); });
    if (!held_by_all || !IsAsNewAs(id, checkpoint)) continue;
    point.source = ps::RestoreRequest::MAPPED;  // sorted, so the last match is the newest
    point.id = id;
  }
  VersionId newest = point.id;
  for (size_t shard = 0; shard < held.size(); ++shard) {
    if (held[shard].empty()) continue;
    const VersionId& last = *held[shard].rbegin();
    newest = std::max(newest, last);  // by epoch first: an older history does not count
    std::string warning = WhyNotUsed(shard, last, point, checkpoint);
    if (!warning.empty()) point.warnings.push_back(std::move(warning));
  }
  const uint64_t highest = std::max(known_version, newest.version);
  point.rolled_back_steps = highest - std::min(highest, point.id.version);
  return point;
}

}  // namespace pushpull
