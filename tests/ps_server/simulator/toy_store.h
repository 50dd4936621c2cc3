// The variable store of one shard as the state machines see it: two buffers, versions in them,
// orders that take time. The buffers are the shard's state file: they outlive a killed process (the
// object stays, Crash tells it) unless the machine is lost, and a shard that moves to another
// machine finds the file that it left there, whatever has happened since.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_STORE_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_STORE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ps_server/core/shard_events.h"
#include "tests/ps_server/simulator/sim_config.h"
#include "tests/ps_server/simulator/toy_model.h"
#include "tests/ps_server/simulator/world.h"

namespace pushpull::sim {

class ToyStore {
 public:
  ToyStore(World* world, uint32_t shard) : world_(world), shard_(shard) {}

  // Whole versions, oldest first.
  std::vector<VersionId> held() const;
  // The newest of them.
  std::optional<VersionId> newest() const;
  // Null: not held.
  const ToyState* Find(uint64_t version) const;

  // The steps of the orders; each is one instant, time passes between them. A version that is being
  // made is none: where the process is killed meanwhile, nothing of it is left. One chunk, of what
  // the step will probably be made of:
  void MakeAhead(const shard_action::StoreApplyAhead& order);
  // The chunks that were not made ahead from exactly the bytes of the order. Make these, then
  // Commit.
  std::vector<int> BeginApply(const shard_action::StoreApply& order);
  void MakeChunk(const shard_action::StoreApply& order, int chunk);
  void Commit(const shard_action::StoreApply& order);

  std::vector<double> Measure(const shard_action::StoreMeasure& order) const;
  absl::StatusOr<std::string> Restore(const shard_action::StoreRestore& order);
  // Copies the buffer as it is now, whatever is in it.
  Disk::ShardFile Capture(uint64_t step, const std::string& marks) const;

  // The process was killed.
  void Crash(bool mapped_state_survives);
  // The shard goes on on the other one of two machines. Its state file stays behind.
  void MoveAway();
  // The process ends and removes its state file.
  void RemoveFile();

 private:
  struct Buffer {
    std::optional<VersionId> id;  // none: nothing whole
    ToyState state;
    std::string marks;
    uint64_t last_version = 0;  // what was here last, also when it is being overwritten
  };
  using File = std::array<Buffer, 2>;
  Buffer* Newest();
  // The version `step` is being made from now on, in the buffer of the one before the newest.
  void BeginVersion(uint64_t step);
  // Elements before the chunk.
  size_t FirstOf(int chunk) const;
  void Make(int chunk, const std::vector<StagedChunk>& from, double squared_norm);
  const std::vector<int>& chunks() const { return world_->config().chunk_elements[shard_]; }

  World* world_;
  uint32_t shard_;
  File buffers_;
  File elsewhere_;                                   // the state file on the other machine
  int writing_ = -1;                                 // buffer of the version that is being made
  std::vector<std::vector<StagedChunk>> made_from_;  // by chunk of that version; empty: not made
};

// One number per shard: the sum of squares of the averaged gradient.
std::vector<ToyContribution> ToContributions(const std::vector<StagedContribution>& staged);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_STORE_H_
