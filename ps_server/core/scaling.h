// The part of the Coordinator that changes how the global batch of a synchronous job is divided:
// over how many replicas, when an administrator calls Scale, and in which shares, when they follow
// the clones' speeds. Knows when a change is due; Membership carries it out. Not thread-safe.
//
// A change holds from a step boundary on. The number of replicas is on disk before any step uses
// it, so a restarted process goes on with the old number or with the new one. Shares are not kept:
// a new process measures the speeds anew.
#ifndef PUSHPULL_PS_SERVER_CORE_SCALING_H_
#define PUSHPULL_PS_SERVER_CORE_SCALING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/membership.h"
#include "ps_server/core/step_commits.h"

namespace pushpull {

class Scaling {
 public:
  // Shares change only after this many measured steps since the last change.
  static constexpr uint32_t kMeasuredSteps = 5;
  // Shares change only if the slowest replica would then need less than this fraction of its time.
  static constexpr double kWorthwhile = 0.95;

  // The arguments outlive this object. Actions are appended to `actions`.
  Scaling(const CoordinatorOptions& options, const JobState& job, const Membership* members,
          CoordinatorActions* actions);

  // An administrator wants this number of replicas. Answers the call, or orders PersistReplicas and
  // answers when that is done. `next_step`: the first step that can have another number.
  //   INVALID_ARGUMENT: the number is 0 or above kMaxReplicas
  //   FAILED_PRECONDITION: asynchronous mode; fewer samples in the batch than replicas; no step
  //     follows
  //   ABORTED: an earlier call is not answered yet
  void Ask(CallId call, const ps::ScaleRequest& request, uint64_t next_step);
  // Returns whether a new number is due now. Answer follows.
  bool OnPersisted(const coordinator_event::ReplicasPersisted& event);
  // Answers the call that waits, if there is one: the number holds from `from_step` on.
  void Answer(uint64_t from_step);
  // Refuses the call that waits, if there is one.
  void Refuse(const absl::Status& status);

  // Returns whether the next step is to be divided anew.
  bool IsDue() const { return due_number_.has_value() || due_shares_.has_value(); }
  // Returns the shares of the division that is due, and forgets it. The caller divides by them.
  std::vector<int64_t> TakeDue();

  // Every shard has applied the step that had these commits.
  void NoteApplied(const StepCommits& commits);
  // Called when a step opens: with shares by speed, plans other shares for the step after it, if
  // they are worthwhile.
  void Plan();

 private:
  // Returns the speed of each replica in samples per second; empty if one is not known.
  std::vector<double> ReplicaSpeeds() const;

  const CoordinatorOptions& options_;
  const JobState& job_;
  const Membership* const members_;
  CoordinatorActions* const actions_;

  std::optional<uint32_t> on_disk_;     // the number on disk; nothing while that is not certain
  std::optional<uint32_t> persisting_;  // the number that is being written
  std::optional<CallId> call_;          // the Scale call that waits for the disk
  std::optional<uint32_t> due_number_;
  std::optional<std::vector<int64_t>> due_shares_;
  std::map<uint32_t, double> speeds_;  // by clone, in samples per second; a moving average
  uint32_t measured_steps_ = 0;        // since the last change
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SCALING_H_
