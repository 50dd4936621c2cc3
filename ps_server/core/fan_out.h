// Sends the same call to every shard and repeats it with back-off until each has answered. Not
// thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_FAN_OUT_H_
#define PUSHPULL_PS_SERVER_CORE_FAN_OUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "ps_server/core/coordinator_events.h"

namespace pushpull {

class FanOut {
 public:
  // Rpc ids are first_rpc (> 0), first_rpc + stride, and so on. Fan-outs that share a stride and
  // differ in first_rpc modulo the stride never use the same id. A failed call is repeated after
  // first_retry; the pause doubles up to last_retry.
  FanOut(RpcId first_rpc, RpcId stride, absl::Duration first_retry, absl::Duration last_retry);

  // Forgets the calls under way and calls shards 0..num_shards-1.
  void Start(const ShardCall& call, uint32_t num_shards, absl::Duration now,
             CoordinatorActions* actions);
  // Calls the shards that have replied once more, unless such a call is still under way or waits
  // for its repetition. Their replies count until newer ones replace them, so that only the shards
  // that have not replied since Start are awaited.
  void CallAnsweredAgain(CoordinatorActions* actions);
  // Forgets the calls under way; their answers are ignored.
  void Stop();
  bool active() const { return active_; }

  // Returns the shard that this rpc was sent to, or nothing if its answer is no longer awaited.
  std::optional<uint32_t> ShardOf(RpcId rpc) const;
  void SetReply(uint32_t shard, ShardReply reply);
  // Notes that the shard's call failed. Retry repeats it after the shard's pause.
  void SetFailed(uint32_t shard, const absl::Status& status, absl::Duration now);
  bool AllReplied() const;
  // Returns the replies in shard order. Valid only when AllReplied.
  std::vector<ShardReply> replies() const;
  // Returns the first shard without a reply; started() is the time of Start.
  std::optional<uint32_t> FirstMissing() const;
  absl::Duration started() const { return started_; }
  // Returns the error of the shard's last call that failed since Start; OK if none has failed.
  const absl::Status& failure(uint32_t shard) const { return shards_[shard].failure; }

  // Repeats the failed calls whose pause has passed.
  void Retry(absl::Duration now, CoordinatorActions* actions);
  absl::Duration NextWakeup() const;

 private:
  struct Shard {
    RpcId rpc = 0;  // 0: no call under way
    absl::Duration retry_at = absl::InfiniteDuration();
    absl::Duration pause;
    std::optional<ShardReply> reply;
    absl::Status failure;
  };
  void Call(uint32_t shard, CoordinatorActions* actions);

  RpcId next_rpc_;
  const RpcId stride_;
  const absl::Duration first_retry_;
  const absl::Duration last_retry_;
  bool active_ = false;
  ShardCall call_;
  absl::Duration started_ = absl::ZeroDuration();
  std::vector<Shard> shards_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_FAN_OUT_H_
