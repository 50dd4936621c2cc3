// Bugs that a simulation plants in the state machines of ps_server/core, by altering their events
// and actions (mutated_shard.h, mutated_coordinator.h). Each one breaks one rule of the protocol.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_

namespace pushpull::sim {

struct CoreBugs {
  bool ignore_epochs = false;      // a message of an older epoch is taken for one of this epoch
  bool ignore_push_marks = false;  // async: a batch that has counted is taken for the next one
  bool overlook_restarts = false;  // a shard that has restarted is taken for the one before
  bool ignore_epochs_of_versions = false;  // versions are compared by their numbers alone

  // Shard.
  bool count_repeated_chunks = false;       // a repeated chunk counts as another one
  bool ack_before_staged = false;           // a push is STAGED although chunks are missing
  bool ignore_grants_of_chunks = false;     // chunks of an older grant are staged
  bool apply_twice = false;                 // a repeated Apply makes the version again
  bool keep_staging = false;                // applied chunks stay, for the next step
  bool sum_in_arrival_order = false;        // contributions are summed as they came
  bool keep_version_after_restore = false;  // pulls get the version from before the restore
  bool overwrite_what_is_saved = false;     // an apply does not wait for a snapshot
  bool forget_marks_at_restore = false;     // async: a restored version has no positions

  // Coordinator.
  bool ignore_grants_of_commits = false;  // a commit under an older grant counts
  bool accept_late_commits = false;       // a commit after the decision is said to count
  bool count_requests = false;            // a repeated commit counts as another replica's
  bool accept_later_positions = false;    // async: a position beyond the next one counts
  bool await_first_shard_only = false;    // the next step opens when shard 0 has applied this one
  bool forget_evictions = false;          // an eviction is answered and has no effect
  bool ignore_sessions = false;           // any process may take the place of a live clone
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_
