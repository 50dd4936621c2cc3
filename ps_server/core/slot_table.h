// Who works: clones with their leases, slots with their owners and grants. Grants are fencing
// tokens: every one given out is greater than all before it, over all epochs. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_SLOT_TABLE_H_
#define PUSHPULL_PS_SERVER_CORE_SLOT_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

struct Clone {
  std::string peer_name;
  uint64_t session = 0;         // RegisterRequest.session: whoever knows it is this clone
  uint64_t process_number = 0;  // RegisterRequest.process_number: the newest process of the session
  bool seen = false;            // has registered in some epoch
  bool registered = false;      // in this epoch
  bool alive = false;           // registered and its lease has not ended
  absl::Duration last_seen = absl::ZeroDuration();
  ps::CloneProgress progress;
  uint64_t contributions = 0;
  uint64_t drops = 0;
  std::optional<std::string> evicted;  // why; for the life of the process
};

class SlotTable {
 public:
  static constexpr uint32_t kMaxSpares = 256;

  struct Slot {
    std::optional<uint32_t> owner;  // worker id; nobody until the first grant of the epoch
    uint64_t grant = 0;
    uint64_t from_step = 0;
  };

  // A slot's home is the clone whose worker_id is its number; others stand in for it.
  SlotTable(absl::Duration lease, bool reassign) : lease_(lease), reassign_(reassign) {}

  // Fixes the number of slots, once.
  void SetNumSlots(uint32_t num_slots);
  uint32_t num_slots() const { return static_cast<uint32_t>(slots_.size()); }

  // A new epoch: everybody has to register again; nobody owns a slot.
  void BeginEpoch(uint64_t epoch, absl::Duration now);

  const Clone* Find(uint32_t worker_id) const;
  Clone& clone(uint32_t worker_id) { return clones_[worker_id]; }
  const std::map<uint32_t, Clone>& clones() const { return clones_; }
  const Slot& slot(uint32_t slot) const { return slots_[slot]; }

  // The clone is here (again). Slots it owned are granted anew: from `step`, or from the step after
  // it where `committed` says that the slot has a contribution for `step`. Its home slot and free
  // ones follow at once if nobody alive owns them, else at the next step.
  void Register(uint32_t worker_id, const std::string& peer_name, uint64_t step, absl::Duration now,
                absl::FunctionRef<bool(uint32_t slot)> committed);
  // Renews the lease. False: not registered in this epoch, or its lease has ended.
  bool Renew(uint32_t worker_id, absl::Duration now);
  // Ends the clone's lease for good and returns the slots it owned; Reassign gives them away. Once
  // only: later calls return nothing.
  std::vector<uint32_t> Evict(uint32_t worker_id, const std::string& reason);
  bool IsEvicted(uint32_t worker_id) const;
  // Ends leases. Returns the clones that were lost just now.
  std::vector<uint32_t> ExpireLeases(absl::Duration now);
  // Gives slots of lost clones, without a contribution for `step`, to clones alive: to one without
  // a slot, else to the one with the fewest. Returns the slots that changed hands. Slots whose home
  // is evicted find another home like this in both modes.
  std::vector<uint32_t> Reassign(uint64_t step, absl::Duration now,
                                 absl::FunctionRef<bool(uint32_t slot)> committed);
  // Step `step` opens: slots go back to their homes where those are alive.
  std::vector<uint32_t> ReturnHome(uint64_t step);

  std::vector<ps::SlotGrant> GrantsOf(uint32_t worker_id) const;
  bool AnyAlive() const;
  // Whether a clone with this id may be taken in: the job has so many spares (ids from num_slots
  // on) at most. To make room the one is forgotten that has been lost for longest.
  bool HasRoomFor(uint32_t worker_id);
  // When the next lease ends.
  absl::Duration NextWakeup(absl::Duration now) const;
  // Start of the epoch, for clones never seen.
  absl::Duration epoch_start() const { return epoch_start_; }

 private:
  void Grant(uint32_t slot, uint32_t worker_id, uint64_t from_step);
  bool IsAlive(std::optional<uint32_t> worker_id) const;
  std::optional<uint32_t> LeastBusy() const;

  const absl::Duration lease_;
  const bool reassign_;  // false: a slot waits for its own clone, unless evicted (async)
  uint64_t epoch_ = 0;
  uint32_t grants_ = 0;  // given out in this epoch
  absl::Duration epoch_start_ = absl::ZeroDuration();
  std::vector<Slot> slots_;
  std::map<uint32_t, Clone> clones_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SLOT_TABLE_H_
