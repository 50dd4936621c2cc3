// The part of the Coordinator that knows the clones: who registers, renews its lease, holds which
// replica, is lost or evicted. Knows nothing of steps: callers pass the step, and a function that
// says whether a replica has contributed to it. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_MEMBERSHIP_H_
#define PUSHPULL_PS_SERVER_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/replica_table.h"

namespace pushpull {

// Async: a version that has the positions of `trained` replicas can only be continued with as many.
// 0 for either number: it is not known or not said, so nothing is refused. FAILED_PRECONDITION: the
// server was started with another number; the message says what to do.
absl::Status CheckNumReplicas(uint32_t trained, uint32_t num_replicas);

class Membership {
 public:
  using HasContribution = absl::FunctionRef<bool(uint32_t replica)>;

  // The arguments outlive this object. Actions are appended to `actions`.
  Membership(const CoordinatorOptions& options, const JobState& job, CoordinatorActions* actions);

  // Begins job.epoch: every clone must register again, and no replica has an owner.
  void BeginEpoch() { table_.BeginEpoch(job_.epoch, job_.now); }
  // Sync: divides the global batch anew from `step` on: shares[i] samples for replica i, of which
  // there are shares.size(). All grants given before are void. See ReplicaTable::Divide.
  void Divide(std::vector<int64_t> shares, uint64_t step);
  // An administrator has set the number of replicas: clones may announce another one, and replicas
  // of clones that were never seen go to others.
  void NoteScaled();

  // Async: the restored version has the positions of this many replicas, which sets their number;
  // 0: it has none, and any number may follow. FAILED_PRECONDITION: the options have set another
  // one.
  absl::Status KeepNumReplicas(uint32_t num_replicas);

  // Returns the number of replicas, 0 until the options, the restored version or the first clone
  // have set it.
  uint32_t num_replicas() const { return table_.num_replicas(); }
  uint32_t most_replicas() const { return table_.most_replicas(); }
  const ReplicaTable::Replica& replica(uint32_t replica) const { return table_.replica(replica); }
  // Sync: the number of samples of each replica.
  const std::vector<int64_t>& shares() const { return shares_; }
  // Returns the clone's grants. Sync: with the parts of the batch that they are for.
  std::vector<ps::ReplicaGrant> GrantsOf(uint32_t worker) const;
  bool AnyAlive() const { return table_.AnyAlive(); }
  uint32_t num_alive() const { return table_.num_alive(); }
  // Returns whether a live clone holds the replica.
  bool HasLiveOwner(uint32_t replica) const {
    return table_.IsAlive(table_.replica(replica).owner);
  }
  bool IsEvicted(uint32_t worker) const { return table_.IsEvicted(worker); }
  // Returns the clone that holds the replica, or its home if nobody has held it in this epoch.
  uint32_t WorkerOf(uint32_t replica) const;
  // Returns whether the replica's home is this clone, or this clone holds its grant now.
  bool IsReplicaOf(uint32_t replica, uint32_t worker) const;
  // Returns, for example, "clone 2 of 3 (host:7)".
  std::string CloneName(uint32_t worker) const;

  // Returns EVICTED, with the administrator's reason, if an administrator has evicted the clone.
  absl::Status CheckNotEvicted(uint32_t worker) const;
  // Returns OK if the process may register. The first process that may register sets the number of
  // replicas, if nothing else has set it.
  //   FAILED_PRECONDITION  another protocol version; another number of training images than the run
  //                        has (only with num_epochs); more clones than samples in a batch (sync);
  //                        an id that is not below the number of clones (async); another number of
  //                        clones: always (async), or from a clone with a home replica in a job
  //                        that was not scaled, because its flags are probably wrong (sync)
  //   LAYOUT_MISMATCH      another model, or another declaration of an external model
  //   JOB_CHANGED          the process computes for an earlier server, which had other settings
  //   INVALID_ARGUMENT     no clones or more than kMaxReplicas; no images (only with num_epochs)
  //   PERMISSION_DENIED    a newer process of the clone has registered
  //   ALREADY_EXISTS       a live clone has this id, or live clones have another number of images.
  //                        The process asks again for a while
  //   RESOURCE_EXHAUSTED   there are ReplicaTable::kMaxSpares spares
  absl::Status CheckAnnouncement(const ps::RegisterRequest& request);
  // Registers a process that CheckAnnouncement has let in, and grants it its replicas for the step
  // after job.version.
  void Register(const ps::RegisterRequest& request, HasContribution committed);
  // Renews the lease and stores the progress, or ends the lease of a clone that is leaving. Returns
  // EVICTED, or EPOCH_CHANGED if the process has not registered in this epoch or is not the newest
  // of its clone.
  absl::Status Heartbeat(const ps::HeartbeatRequest& request);
  // Renews the lease of a clone that commits. Returns EPOCH_CHANGED if it has not registered in
  // this epoch, or has to register again because another clone brought other training images
  // meanwhile.
  absl::Status Renew(uint32_t worker);

  // Returns NOT_FOUND for a clone that the job does not know, INVALID_ARGUMENT for a long reason.
  absl::Status CheckEvict(const ps::EvictRequest& request) const;
  // Ends the clone's lease for as long as this process lives. Returns the replicas that it had. A
  // repeated call does nothing.
  ps::EvictReply Evict(const ps::EvictRequest& request);

  // Ends the leases that are due. Returns the clones that are lost thereby.
  std::vector<uint32_t> ExpireLeases() { return table_.ExpireLeases(job_.now); }
  void WarnOfLost(const std::vector<uint32_t>& workers);
  // Called when `step` opens: replicas return to their homes that are alive.
  void ReturnHome(uint64_t step) { table_.ReturnHome(step); }
  // Gives the replicas of lost and evicted clones to others (see ReplicaTable::Reassign).
  void Reassign(uint64_t step, HasContribution committed);
  absl::Duration NextWakeup() const { return table_.NextWakeup(job_.now); }

  // Figures of a clone for the status.
  void CountContribution(uint32_t worker);
  void CountDrop(uint32_t worker) { ++table_.clone(worker).drops; }

  // Describes whom the step waits for, for example "clone 2 of 3 (lost) and 1 more"; empty if
  // `late`, the replicas that are missing, is empty.
  std::string DescribeLate(const std::vector<uint32_t>& late) const;
  // Returns what the clones that have contributed since the server started compute on, as their
  // newest processes have told: each Arithmetic.device once, ascending.
  std::vector<std::string> Devices() const;
  // Fills in the clones and who owns the replicas that are late. Spares that have gone are not
  // among the clones, but those that an administrator has evicted are.
  void AddTo(ps::StatusReply* status, const std::vector<uint32_t>& late, absl::Duration now) const;

 private:
  absl::Status NotRegistered(uint32_t worker) const;
  absl::Status Leave(uint32_t worker);
  // JOB_CHANGED: the clone's process computes for the job of an earlier server, which had other
  // settings.
  absl::Status CheckFingerprint(const ps::RegisterRequest& request, const std::string& who) const;
  // LAYOUT_MISMATCH. External model: the clone's variables do not have the attributes with which
  // they were declared. Other models: CheckFrozen.
  absl::Status CheckDeclared(const ps::RegisterRequest& request, const std::string& who) const;
  // LAYOUT_MISMATCH: the clone has frozen a variable that the server trains, so it would push zeros
  // for a gradient.
  absl::Status CheckFrozen(const ps::RegisterRequest& request, const std::string& who) const;
  absl::Status CheckReplicas(const ps::RegisterRequest& request, const std::string& who) const;
  void SetNumReplicas(uint32_t num_replicas);
  absl::Status CheckImages(const ps::RegisterRequest& request, const std::string& who) const;
  absl::Status CheckProcess(const ps::RegisterRequest& request, const std::string& who) const;
  // Returns ALREADY_EXISTS, after which the clone asks again for a while, if a live clone has
  // another number of training images.
  absl::Status CheckSameImages(const ps::RegisterRequest& request, const std::string& who) const;
  // Lets lost clones with another number of training images than this one's register again before
  // they go on, so that CheckSameImages refuses them.
  void ForgetOthersImages(uint32_t worker);
  // Sync: warns, once, if the clone rounds in another way than another clone that is alive.
  void WarnOfOtherRounding(uint32_t worker);

  const CoordinatorOptions& options_;
  const JobState& job_;
  CoordinatorActions* const actions_;
  ReplicaTable table_;
  std::vector<int64_t> shares_;  // sync: by replica
  bool scaled_ = false;
  bool warned_of_rounding_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_MEMBERSHIP_H_
