// A ShardAggregator with planted bugs (core_bugs.h). It alters the events that go into the
// production aggregator and the actions that come out, so that both together behave like a shard
// that breaks a rule of the protocol. If no bug is switched on, nothing is altered. Not
// thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_SHARD_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_SHARD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps_server/core/shard_aggregator.h"
#include "tests/ps_server/simulator/core_bugs.h"

namespace pushpull::sim {

// Hides the functions of ShardAggregator through which events go in and actions come out.
class MutatedShard : public ShardAggregator {
 public:
  // `bugs` must outlive the shard.
  MutatedShard(const ShardOptions& options, const CoreBugs* bugs)
      : ShardAggregator(options), options_(options), bugs_(*bugs) {}

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload,
                         const absl::Status& verdict);
  ShardActions Handle(const ShardEvent& event);
  ps::ShardStateReply State() const;

 private:
  // The chunks that have arrived for the newest contribution of a replica.
  struct Arrivals {
    uint64_t grant = 0;
    uint64_t step = 0;
    size_t count = 0;   // Includes repeated chunks.
    int64_t order = 0;  // The rank of the contribution by the arrival of its first chunk.
    std::map<uint32_t, std::pair<ps::PushChunk, Payload>> chunks;
  };

  void NoteChunk(const ps::PushChunk& header, const Payload& payload);
  void AlterEpoch(auto* request) const;
  void AlterKey(ps::PushKey* key) const;
  // Alter changes an event before the shard sees it. Events without an overload are unchanged.
  void Alter(auto*) {}
  void Alter(shard_event::FinishPush* event) { AlterKey(event->last.mutable_key()); }
  void Alter(shard_event::Pull* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::MeasureNorm* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::Apply* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::Snapshot* event) {
    AlterEpoch(&event->request);
    if (bugs_.ignore_attempts) event->request.clear_attempt();
  }
  void Alter(shard_event::Restore* event);
  void AlterAnswer(const shard_event::FinishPush& event, ShardAction* action) const;
  void SortByArrival(std::vector<StagedContribution>* contributions) const;
  // Stages the chunks of the applied step again, as contributions to the next step.
  void StageAgain();
  // Tells the shard that a snapshot is written as soon as it is ordered. The coordinator's answer
  // is held back until the snapshot is really written.
  void FinishSnapshotEarly(ShardActions* actions);
  void SetMarks(const std::string& marks);

  const ShardOptions options_;
  const CoreBugs& bugs_;
  std::map<uint32_t, Arrivals> arrivals_;        // By replica.
  std::map<uint32_t, uint64_t> next_positions_;  // By replica, after the applied versions.
  int64_t arrival_orders_ = 0;
  std::optional<shard_action::StoreApply> apply_;  // The newest order.
  bool store_busy_ = false;
  uint64_t version_before_restore_ = 0;
  int snapshots_under_way_ = 0;
  ShardActions early_answers_;  // The answers to Snapshot calls that are held back.
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_SHARD_H_
