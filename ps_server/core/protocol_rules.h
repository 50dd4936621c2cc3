// The rules that make the protocol right, one switch each. Production code always uses the
// defaults; the simulator's own tests switch one off at a time and demand that the invariants
// notice (tests/ps_server/simulator/seeded_bugs_test.cc).
#ifndef PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_
#define PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_

namespace pushpull {

struct ProtocolRules {
  // Shard.
  bool dedupe_chunks = true;             // a chunk counts once, however often it comes
  bool require_complete = true;          // STAGED is said only when every chunk is there
  bool check_epoch = true;               // an older epoch never changes state
  bool check_grant_at_shard = true;      // an older grant never changes state
  bool apply_once = true;                // applying a step twice is a no-op
  bool clear_staging = true;             // applied and superseded contributions are dropped
  bool sum_in_slot_order = true;         // not in order of arrival
  bool reset_version_on_restore = true;  // pulls get the restored version
  bool hold_apply_for_capture = true;    // a version being captured is not overwritten

  // Coordinator.
  bool check_grant_at_commit = true;   // an older grant does not commit
  bool freeze_contributors = true;     // a commit after the decision does not count in the step
  bool count_slots = true;             // a step is decided by slots heard, not by requests
  bool check_push_marks = true;        // a batch of a slot is decided once (async)
  bool restore_push_marks = true;      // the batches decided come back with a restored version
  bool refuse_later_positions = true;  // a batch of a slot is not left out (async)
  bool compare_epochs = true;          // versions are compared with the epoch they were made in
  bool await_all_shards = true;        // the next step waits until every shard has applied this one
  bool check_boot_id = true;           // a restarted shard causes a new epoch
  bool check_eviction = true;          // an evicted clone is refused whatever it asks for
  bool check_session = true;           // while a clone is alive, no other process takes its place
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PROTOCOL_RULES_H_
