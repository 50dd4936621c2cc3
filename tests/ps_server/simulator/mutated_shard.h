// A ShardAggregator with a bug: its events and actions are altered on the way in and out, as a
// shard that breaks one rule of the protocol would. Without a bug it is a plain ShardAggregator.
// Not thread-safe.
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
  // `bugs` outlives the shard.
  MutatedShard(const ShardOptions& options, const CoreBugs* bugs)
      : ShardAggregator(options), options_(options), bugs_(*bugs) {}

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload,
                         const absl::Status& verdict);
  ShardActions Handle(const ShardEvent& event);
  ps::ShardStateReply State() const;

 private:
  // The chunks that have come for the newest contribution of a replica.
  struct Arrivals {
    uint64_t grant = 0;
    uint64_t step = 0;
    size_t count = 0;   // repeated chunks included
    int64_t order = 0;  // rises with the first chunk of each contribution
    std::map<uint32_t, std::pair<ps::PushChunk, Payload>> chunks;
  };

  void NoteChunk(const ps::PushChunk& header, const Payload& payload);
  void AlterEpoch(auto* request) const;
  void AlterKey(ps::PushKey* key) const;
  // Alters a request that goes in. The overload for all other events does nothing.
  void Alter(auto*) {}
  void Alter(shard_event::FinishPush* event) { AlterKey(event->last.mutable_key()); }
  void Alter(shard_event::Pull* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::MeasureNorm* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::Apply* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::Snapshot* event) { AlterEpoch(&event->request); }
  void Alter(shard_event::Restore* event);
  void AlterAnswer(const shard_event::FinishPush& event, ShardAction* action) const;
  void SortByArrival(std::vector<StagedContribution>* contributions) const;
  // Stages what was applied once more, as contributions to the next step.
  void StageAgain();
  // Tells the shard that its snapshot is written when it is ordered, and the coordinator when it is
  // really written.
  void FinishSnapshotEarly(ShardActions* actions);
  void SetMarks(const std::string& marks);

  const ShardOptions options_;
  const CoreBugs& bugs_;
  std::map<uint32_t, Arrivals> arrivals_;        // by replica
  std::map<uint32_t, uint64_t> next_positions_;  // by replica: as the applied versions say
  int64_t arrival_orders_ = 0;
  std::optional<shard_action::StoreApply> apply_;  // the newest
  bool store_busy_ = false;
  uint64_t version_before_restore_ = 0;
  int snapshots_under_way_ = 0;
  ShardActions early_answers_;  // to Snapshot calls
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_SHARD_H_
