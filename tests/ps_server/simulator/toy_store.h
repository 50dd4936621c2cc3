// A model of the variable store of one shard. It holds two versions in two buffers, which stand for
// the shard's state file. The buffers survive a killed process, because the ToyStore object lives
// on and Crash only tells it what happened. They are lost with the machine. There are two machines;
// a shard that moves to the other machine finds the state file that it last left there.
//
// All functions act at one instant of virtual time; SimServer decides how much time passes between
// them. Memory mapping, file formats and I/O are not modelled. Not thread-safe.
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

  // Returns the complete versions, oldest first.
  std::vector<VersionId> held() const;
  // Returns the newest complete version.
  std::optional<VersionId> newest() const;
  // Returns the values of a version, or null if the store does not hold it.
  const ToyState* Find(uint64_t version) const;

  // An apply calls BeginApply, MakeChunk for each chunk that it returns, and then Commit. A version
  // becomes visible at Commit; if the process is killed before that, the version is lost.

  // Makes one chunk of the next version from the contributions that the step will probably have.
  void MakeAhead(const shard_action::StoreApplyAhead& order);
  // Returns the chunks that the apply must still make. The others were made ahead from exactly the
  // contributions of the order.
  std::vector<int> BeginApply(const shard_action::StoreApply& order);
  void MakeChunk(const shard_action::StoreApply& order, int chunk);
  void Commit(const shard_action::StoreApply& order);

  // Returns one squared norm per shard. All are 0 except that of this shard's averaged gradient.
  std::vector<double> Measure(const shard_action::StoreMeasure& order) const;
  // Restores the version of the order and returns its positions. Returns FAILED_PRECONDITION if
  // neither the store nor the disk has the version.
  absl::StatusOr<std::string> Restore(const shard_action::StoreRestore& order);
  // Copies the buffer that held version `step` last, even if it is being overwritten.
  Disk::ShardFile Capture(uint64_t step, const std::string& marks) const;

  // Called when the process is killed.
  void Crash(bool mapped_state_survives);
  // Moves the shard to the other of the two machines. Its state file stays behind.
  void MoveAway();
  // Removes the state file, as a process may do when it ends.
  void RemoveFile();

 private:
  struct Buffer {
    std::optional<VersionId> id;  // nullopt: the buffer holds no complete version.
    ToyState state;
    std::string marks;
    uint64_t last_version = 0;  // The last complete version of the buffer.
  };
  using File = std::array<Buffer, 2>;
  Buffer* Newest();
  // Starts version `step` in the buffer that does not hold the newest version.
  void BeginVersion(uint64_t step);
  // Returns the number of elements before the chunk.
  size_t FirstOf(int chunk) const;
  void Make(int chunk, const std::vector<StagedChunk>& from, double squared_norm);
  const std::vector<int>& chunks() const { return world_->config().chunk_elements[shard_]; }

  World* world_;
  uint32_t shard_;
  File buffers_;
  File elsewhere_;                                   // The state file on the other machine.
  int writing_ = -1;                                 // The buffer of the unfinished version, or -1.
  std::vector<std::vector<StagedChunk>> made_from_;  // By chunk of that version; empty if not made.
};

// Converts staged contributions to gradients of the whole shard.
std::vector<ToyContribution> ToContributions(const std::vector<StagedContribution>& staged);

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_TOY_STORE_H_
