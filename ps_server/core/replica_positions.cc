#include "ps_server/core/replica_positions.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

bool ReplicaPositions::Restore(absl::string_view marks, uint64_t version) {
  next_.clear();
  num_restored_ = 0;
  unmarked_steps_ = 0;
  ps::PushMarks parsed;
  if (!parsed.ParseFromArray(marks.data(), static_cast<int>(marks.size())) ||
      !parsed.has_positions()) {
    unmarked_steps_ = version;
    return version == 0;
  }
  for (const ps::PushMark& mark : parsed.marks()) next_[mark.replica()] = mark.next_position();
  num_restored_ = static_cast<uint32_t>(next_.size());
  return true;
}

std::string ReplicaPositions::Serialize(uint32_t num_replicas) const {
  ps::PushMarks marks;
  marks.set_has_positions(true);
  for (uint32_t replica = 0; replica < num_replicas; ++replica) {
    ps::PushMark& mark = *marks.add_marks();
    mark.set_replica(replica);
    mark.set_next_position(Next(replica, num_replicas));
  }
  return marks.SerializeAsString();
}

uint64_t ReplicaPositions::Next(uint32_t replica, uint32_t num_replicas) const {
  const auto next = next_.find(replica);
  if (next != next_.end()) return next->second;
  return num_replicas == 0 ? 0 : unmarked_steps_ / num_replicas;
}

}  // namespace pushpull
