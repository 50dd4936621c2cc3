// Collects the commits of the open step. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_STEP_COMMITS_H_
#define PUSHPULL_PS_SERVER_CORE_STEP_COMMITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

struct ReplicaCommit {
  uint64_t grant = 0;
  uint32_t worker_id = 0;
  ps::CommitInfo info;
  absl::Duration time = absl::ZeroDuration();  // set by StepCommits::Add
};

class StepCommits {
 public:
  // Forgets all commits and begins to collect those of `step`.
  void Open(uint64_t step);
  uint64_t step() const { return step_; }

  bool Has(uint32_t replica) const { return commits_.count(replica) > 0; }
  const ReplicaCommit* Find(uint32_t replica) const;
  const std::map<uint32_t, ReplicaCommit>& by_replica() const { return commits_; }
  void Add(uint32_t replica, ReplicaCommit commit, absl::Duration now);

  uint32_t num_replicas() const { return static_cast<uint32_t>(commits_.size()); }
  uint32_t num_void() const;
  // Returns the time of the step's first commit, InfiniteDuration before it.
  absl::Duration first_commit() const { return first_commit_; }
  // Returns the time of the first commit by a clone other than `worker`, InfiniteDuration before
  // it.
  absl::Duration FirstCommitOfOthers(uint32_t worker) const;

  // Returns the contributions in replica order, without void ones.
  std::vector<ps::Contribution> Contributions() const;
  // Returns what StepApplied reports, in replica order, void contributions included.
  std::vector<coordinator_action::StepApplied::Part> Parts() const;

 private:
  uint64_t step_ = 0;
  absl::Duration first_commit_ = absl::InfiniteDuration();
  std::map<uint32_t, ReplicaCommit> commits_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STEP_COMMITS_H_
