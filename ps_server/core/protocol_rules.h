// The rules that make the protocol correct, with one switch each. Production code always uses the
// defaults. The simulator's own tests switch off one rule at a time and demand that the invariants
// notice (tests/ps_server/simulator/seeded_bugs_test.cc).
#ifndef PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_
#define PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_

namespace pushpull {

struct ProtocolRules {
  // Shard.
  bool dedupe_chunks = true;             // a chunk counts once, however often it arrives
  bool require_complete = true;          // a shard reports STAGED only when it has every chunk
  bool check_epoch = true;               // a message of an older epoch never changes state
  bool check_grant_at_shard = true;      // a message with an older grant never changes state
  bool apply_once = true;                // applying a step twice is a no-op
  bool clear_staging = true;             // drops applied and superseded contributions
  bool sum_in_replica_order = true;      // sums in replica order, not in order of arrival
  bool reset_version_on_restore = true;  // pulls get the restored version
  bool hold_apply_for_capture = true;    // a version being captured is not overwritten

  // Coordinator.
  bool check_grant_at_commit = true;   // an older grant cannot commit
  bool freeze_contributors = true;     // a commit after the decision does not count in the step
  bool count_replicas = true;          // a step is decided by replicas heard from, not by requests
  bool check_push_marks = true;        // each batch of a replica is decided once (async)
  bool restore_push_marks = true;      // a restored version brings back which batches were decided
  bool refuse_later_positions = true;  // no batch of a replica is skipped (async)
  bool compare_epochs = true;    // versions are compared together with the epoch that made them
  bool await_all_shards = true;  // the next step waits until every shard has applied this one
  bool check_boot_id = true;     // a restarted shard causes a new epoch
  bool check_eviction = true;    // every request of an evicted clone is refused
  bool check_session = true;     // no other process takes the place of a live clone
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_
