#include "ps_server/core/slot_positions.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

bool SlotPositions::Restore(absl::string_view marks, uint64_t version) {
  next_.clear();
  unmarked_steps_ = 0;
  ps::PushMarks parsed;
  if (!parsed.ParseFromArray(marks.data(), static_cast<int>(marks.size())) ||
      !parsed.has_positions()) {
    unmarked_steps_ = version;
    return version == 0;
  }
  for (const ps::PushMark& mark : parsed.marks()) next_[mark.slot()] = mark.next_position();
  return true;
}

std::string SlotPositions::Serialize(uint32_t num_slots) const {
  ps::PushMarks marks;
  marks.set_has_positions(true);
  for (uint32_t slot = 0; slot < num_slots; ++slot) {
    ps::PushMark& mark = *marks.add_marks();
    mark.set_slot(slot);
    mark.set_next_position(Next(slot, num_slots));
  }
  return marks.SerializeAsString();
}

uint64_t SlotPositions::Next(uint32_t slot, uint32_t num_slots) const {
  const auto next = next_.find(slot);
  if (next != next_.end()) return next->second;
  return num_slots == 0 ? 0 : unmarked_steps_ / num_slots;
}

}  // namespace pushpull
