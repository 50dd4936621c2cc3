// Asynchronous mode: how far each slot is in its batches. Batch `position` of a slot contributes at
// most once to a history of versions, so the positions are stored with each version and go back
// with it. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_SLOT_POSITIONS_H_
#define PUSHPULL_PS_SERVER_CORE_SLOT_POSITIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

class SlotPositions {
 public:
  // As Serialize wrote them with version `version`; empty for the initial variables. False: they
  // were written by a release that did not keep positions. Then the slots are taken to have
  // contributed equally to the version, as the workers of that release took it: batches near that
  // place may be trained twice, or not at all, this once.
  bool Restore(absl::string_view marks, uint64_t version);
  // ps.PushMarks of slots 0 .. num_slots-1.
  std::string Serialize(uint32_t num_slots) const;

  // All batches before this one have contributed, or were void.
  uint64_t Next(uint32_t slot, uint32_t num_slots) const;
  bool IsDone(uint32_t slot, uint64_t position, uint32_t num_slots) const {
    return position < Next(slot, num_slots);
  }
  void SetDone(uint32_t slot, uint64_t position) { next_[slot] = position + 1; }

 private:
  std::map<uint32_t, uint64_t> next_;
  uint64_t unmarked_steps_ = 0;  // pushes that were applied before positions were kept
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SLOT_POSITIONS_H_
