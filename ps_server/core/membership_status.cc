// What Membership says of the clones, in words and in the status.
//
// Tested by tests/ps_server/core/membership_test.cc.
// Tested by tests/ps_server/core/membership_messages_test.cc.
#include <map>
#include <set>

#include "absl/strings/str_format.h"

#include "ps_server/core/membership.h"

namespace pushpull {
namespace {

// A spare that has been silent for so many leases is not in the status any more.
constexpr int kLeasesOfLostSpare = 3;

}  // namespace

std::string Membership::DescribeLate(const std::vector<uint32_t>& late) const {
  if (late.empty()) return "";
  const uint32_t worker = WorkerOf(late[0]);
  const Clone* clone = table_.Find(worker);
  std::string state = "never seen";
  if (table_.IsEvicted(worker)) {
    state = "evicted, and no other is there";
  } else if (clone != nullptr && clone->alive) {
    state = clone->progress.phase().empty() ? "alive" : clone->progress.phase();
  } else if (clone != nullptr && clone->seen) {
    state = clone->left ? "left" : "lost";
  }
  if (worker != late[0]) state += absl::StrFormat(", for replica %d", late[0]);
  std::string text = absl::StrFormat("clone %d of %d (%s)", worker, num_replicas(), state);
  if (late.size() > 1) text += absl::StrFormat(" and %d more", late.size() - 1);
  return text;
}

std::vector<std::string> Membership::Devices() const {
  std::set<std::string> devices;
  for (const auto& [id, clone] : table_.clones()) {
    const std::string& device = clone.arithmetic.device();
    if (clone.contributions > 0 && !device.empty()) devices.insert(device);
  }
  return {devices.begin(), devices.end()};
}

void Membership::AddTo(ps::StatusReply* status, const std::vector<uint32_t>& late,
                       absl::Duration now) const {
  status->set_num_replicas(num_replicas());
  std::set<uint32_t> late_clones;
  for (const uint32_t replica : late) late_clones.insert(WorkerOf(replica));
  status->mutable_late_clones()->Assign(late_clones.begin(), late_clones.end());
  std::map<uint32_t, Clone> clones = table_.clones();
  for (uint32_t i = 0; i < num_replicas(); ++i) clones.try_emplace(i);
  for (const auto& [id, clone] : clones) {
    // No replica misses a spare that has gone, for example after the job was scaled down.
    if (id >= num_replicas() && !clone.alive && !clone.evicted.has_value() &&
        now - clone.last_seen >= kLeasesOfLostSpare * options_.lease) {
      continue;
    }
    ps::CloneStatus& entry = *status->add_clones();
    entry.set_worker_id(id);
    entry.set_peer_name(clone.peer_name);
    uint64_t samples = 0;
    for (const ps::ReplicaGrant& grant : GrantsOf(id)) {
      entry.add_replicas(grant.replica());
      samples += grant.samples();
    }
    entry.set_samples_per_step(samples);
    entry.set_alive(clone.alive);
    entry.set_seconds_since_seen(clone.seen ? absl::ToDoubleSeconds(now - clone.last_seen) : -1);
    *entry.mutable_arithmetic() = clone.arithmetic;
    *entry.mutable_progress() = clone.progress;
    if (!clone.alive) {  // what it did last is over
      entry.mutable_progress()->clear_phase();
      entry.mutable_progress()->clear_images_per_second();
      if (clone.progress.has_gpu()) entry.mutable_progress()->mutable_gpu()->clear_utilization();
    }
    entry.set_contributions(clone.contributions);
    entry.set_drops(clone.drops);
    entry.set_evicted(clone.evicted.has_value());
    entry.set_left(clone.left);
  }
}

}  // namespace pushpull
