// Knows the clones with their leases, and the replicas with their owners and grants. Grants are
// fencing tokens: each grant is greater than all earlier ones, over all epochs. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_REPLICA_TABLE_H_
#define PUSHPULL_PS_SERVER_CORE_REPLICA_TABLE_H_

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
  uint64_t session = 0;         // RegisterRequest.session; a process that knows it is this clone
  uint64_t process_number = 0;  // RegisterRequest.process_number: the newest process of the session
  bool seen = false;            // has registered in any epoch
  bool registered = false;      // has registered in this epoch
  bool alive = false;           // has registered, and its lease has not ended
  bool left = false;            // its lease has ended because it said that it ends
  absl::Duration last_seen = absl::ZeroDuration();
  uint64_t num_images = 0;  // RegisterRequest.num_images of the newest process; 0: not said
  ps::Arithmetic arithmetic;
  ps::CloneProgress progress;
  uint64_t contributions = 0;
  uint64_t drops = 0;
  std::optional<std::string> evicted;  // the reason, kept for the life of the process
};

class ReplicaTable {
 public:
  static constexpr uint32_t kMaxSpares = 256;

  struct Replica {
    std::optional<uint32_t> owner;  // worker id; nothing before the first grant of the epoch
    uint64_t grant = 0;
    uint64_t from_step = 0;
  };

  // A replica's home is the clone whose worker_id is the replica's number; other clones stand in
  // for it. With `reassign` false (async), a replica waits for its home unless that is evicted.
  ReplicaTable(absl::Duration lease, bool reassign) : lease_(lease), reassign_(reassign) {}

  // Sets the number of replicas. Has no effect once it is set.
  void SetNumReplicas(uint32_t num_replicas);
  // Changes the number of replicas from `step` on. Every grant given before is void: a replica that
  // had an owner gets a new grant, so that a contribution under an older one is never taken for one
  // of the new division. Replicas that are new have no owner yet.
  void Divide(uint32_t num_replicas, uint64_t step);
  uint32_t num_replicas() const { return static_cast<uint32_t>(replicas_.size()); }
  // Returns the largest number of replicas since this object was made.
  uint32_t most_replicas() const { return most_replicas_; }
  // From now on a replica whose home was never seen goes to another clone like any other, one lease
  // after the start of the epoch: an administrator has set the number of replicas.
  void DoNotWaitForUnseen() { waits_for_unseen_ = false; }

  // Begins an epoch: every clone must register again, and no replica has an owner.
  void BeginEpoch(uint64_t epoch, absl::Duration now);

  const Clone* Find(uint32_t worker_id) const;
  // Returns the clone's entry. Adds one if there is none.
  Clone& clone(uint32_t worker_id) { return clones_[worker_id]; }
  const std::map<uint32_t, Clone>& clones() const { return clones_; }
  const Replica& replica(uint32_t replica) const { return replicas_[replica]; }

  // Registers the clone, for the first time or again. Replicas that it owns are granted anew: from
  // `step`, or from step + 1 where `committed` says that the replica has contributed to `step`. Its
  // home replica is granted too if no live clone owns it and it has not contributed; otherwise
  // ReturnHome grants it at the next step.
  void Register(uint32_t worker_id, const std::string& peer_name, uint64_t step, absl::Duration now,
                absl::FunctionRef<bool(uint32_t replica)> committed);
  // Renews the lease, even one that has ended. Returns false if the clone has not registered in
  // this epoch or is evicted.
  bool Renew(uint32_t worker_id, absl::Duration now);
  // Ends the lease of a clone that says that it ends. It has to register again to come back.
  // Returns false, and does nothing, if it has not registered in this epoch.
  bool Leave(uint32_t worker_id);
  // Ends the clone's lease for as long as this process lives. Returns the replicas that it owned,
  // which Reassign gives away. A repeated call returns nothing.
  std::vector<uint32_t> Evict(uint32_t worker_id, const std::string& reason);
  bool IsEvicted(uint32_t worker_id) const;
  // Ends the leases that are due and returns the clones that are lost thereby.
  std::vector<uint32_t> ExpireLeases(absl::Duration now);
  // Gives every replica that has no live owner and no contribution to `step` to the live clone with
  // the fewest replicas. Returns the replicas that changed hands. A replica that has had no owner
  // in this epoch waits for its home, unless that is evicted: it goes only to an idle spare, or,
  // one lease after the start of the epoch, to any clone if its home was seen in an earlier epoch
  // or DoNotWaitForUnseen was called.
  // In async mode only replicas whose home is evicted move.
  std::vector<uint32_t> Reassign(uint64_t step, absl::Duration now,
                                 absl::FunctionRef<bool(uint32_t replica)> committed);
  // Called when step `step` opens. Grants replicas back to their homes where those are alive, and
  // returns these replicas.
  std::vector<uint32_t> ReturnHome(uint64_t step);

  std::vector<ps::ReplicaGrant> GrantsOf(uint32_t worker_id) const;
  bool AnyAlive() const;
  uint32_t num_alive() const;
  bool IsAlive(std::optional<uint32_t> worker_id) const;
  // Returns whether a clone with this id may register. The table keeps at most kMaxSpares spares
  // (ids from num_replicas on). When it is full, this call forgets the spare that was lost longest
  // ago and neither holds a replica nor is evicted.
  bool HasRoomFor(uint32_t worker_id);
  // Returns when the next lease ends, or when one lease has passed since the start of the epoch,
  // which is the time that clones have to come back; whichever is first.
  absl::Duration NextWakeup(absl::Duration now) const;

 private:
  void Grant(uint32_t replica, uint32_t worker_id, uint64_t from_step);
  std::optional<uint32_t> LeastBusy() const;

  const absl::Duration lease_;
  const bool reassign_;  // false: a replica waits for its home, unless that is evicted (async)
  uint64_t epoch_ = 0;
  uint32_t grants_ = 0;  // given out in this epoch
  uint32_t most_replicas_ = 0;
  bool waits_for_unseen_ = true;
  absl::Duration epoch_start_ = absl::ZeroDuration();
  std::vector<Replica> replicas_;
  std::map<uint32_t, Clone> clones_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_REPLICA_TABLE_H_
