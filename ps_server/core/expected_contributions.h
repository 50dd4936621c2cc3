// Predicts which contributions the next version is made of, so that the shard can apply chunks
// ahead of the decision. A wrong prediction costs work and nothing else. Not thread-safe.
//
// Synchronous mode predicts the replicas that made the previous version, with the same samples.
// Asynchronous mode predicts the replica whose chunk came first, with the samples of its last
// contribution. It predicts only in a job with one task: applying ahead overwrites version t - 2
// while t - 1 may not have reached the shards of other tasks.
//
// Nothing is predicted where norms are measured (clipping, LAMB), because a norm needs the whole
// gradient first. The first prediction follows an applied version (synchronous), or an applied
// contribution of the replica (asynchronous).
#ifndef PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_
#define PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "protos/parameter_server.pb.h"

namespace pushpull {

class ExpectedContributions {
 public:
  ExpectedContributions(bool sync, uint32_t tasks) : sync_(sync), tasks_(tasks) {}

  // Drops everything noted, for a new epoch.
  void Forget();
  // Notes what a version was made of, as the basis of the next prediction.
  void NoteApplied(const ps::ApplyRequest& request);

  struct Expected {
    uint32_t replica = 0;
    uint64_t samples = 0;
  };
  // Returns the contributions predicted for the version after the newest one, in replica order,
  // given that a chunk of `replica` has just arrived. Empty if nothing is predicted or `replica` is
  // not part of the prediction (asynchronous).
  std::vector<Expected> AfterChunkOf(uint32_t replica);

 private:
  const bool sync_;
  const uint32_t tasks_;
  std::map<uint32_t, uint64_t> samples_;  // of the last contribution, by replica
  std::optional<uint32_t> first_;         // asynchronous: the replica whose chunk came first
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_
