// Asynchronous mode: how far each replica has come in its batches. Each batch (replica, position)
// contributes at most once to a history of versions, so the positions are stored with each version
// and restored with it. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_REPLICA_POSITIONS_H_
#define PUSHPULL_PS_SERVER_CORE_REPLICA_POSITIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

class ReplicaPositions {
 public:
  // Restores what Serialize wrote with version `version`. Version 0 has no marks, and every replica
  // begins with its first batch. Returns false if a later version has no positions in `marks`,
  // because it was trained in synchronous mode or by a release that did not keep them. Every
  // replica then goes on with an equal share of the version's steps, so that a few batches near
  // that place may be trained twice or not at all.
  bool Restore(absl::string_view marks, uint64_t version);
  // Returns the number of replicas whose positions Restore has found; 0: `marks` held none.
  uint32_t num_restored() const { return num_restored_; }
  // Returns a serialised ps.PushMarks of replicas 0..num_replicas-1.
  std::string Serialize(uint32_t num_replicas) const;

  // Returns the next position: all earlier batches have contributed or were void.
  uint64_t Next(uint32_t replica, uint32_t num_replicas) const;
  void SetDone(uint32_t replica, uint64_t position) { next_[replica] = position + 1; }

 private:
  std::map<uint32_t, uint64_t> next_;
  uint32_t num_restored_ = 0;
  uint64_t unmarked_steps_ = 0;  // steps of a version without positions
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_REPLICA_POSITIONS_H_
