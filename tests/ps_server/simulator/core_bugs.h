// Switches for the bugs that the simulator plants in the state machines of ps_server/core. Each bug
// breaks one rule of the protocol. MutatedShard and MutatedCoordinator carry the bugs out by
// altering the events and actions of the state machines.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_

namespace pushpull::sim {

struct CoreBugs {
  // Bugs of both state machines.
  bool ignore_epochs = false;      // Messages of an older epoch are accepted.
  bool ignore_push_marks = false;  // Async: a batch that was already applied is applied again.
  bool overlook_restarts = false;  // The restart of a shard goes unnoticed.
  bool ignore_epochs_of_versions = false;  // Versions are compared by number, without the epoch.

  // Bugs of the shard.
  bool count_repeated_chunks = false;       // A repeated chunk counts as a new one.
  bool ack_before_staged = false;           // A push with missing chunks is answered with STAGED.
  bool ignore_grants_of_chunks = false;     // Chunks of an older grant are staged.
  bool apply_twice = false;                 // A repeated Apply updates the variables again.
  bool keep_staging = false;                // Applied chunks stay staged for the next step.
  bool sum_in_arrival_order = false;        // Contributions are summed in order of arrival.
  bool keep_version_after_restore = false;  // A pull returns the version before the restore.
  bool overwrite_what_is_saved = false;     // An apply does not wait for a snapshot.
  bool forget_marks_at_restore = false;     // Async: a restore loses the positions.
  bool ignore_attempts = false;             // A file that was removed is not written again.

  // Bugs of the coordinator.
  bool ignore_grants_of_commits = false;  // A commit under an older grant counts.
  bool accept_late_commits = false;       // A commit after the decision is answered ACCEPTED.
  bool count_requests = false;            // A repeated commit counts for another replica.
  bool accept_later_positions = false;    // Async: a commit may skip positions.
  bool await_first_shard_only = false;    // The next step starts once shard 0 has applied.
  bool forget_evictions = false;          // An eviction is acknowledged but has no effect.
  bool ignore_sessions = false;           // Any process may replace a live clone.
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_CORE_BUGS_H_
