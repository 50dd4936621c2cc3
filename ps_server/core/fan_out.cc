// Tested by tests/ps_server/core/coordinator_test.cc.
#include "ps_server/core/fan_out.h"

#include <algorithm>

namespace pushpull {

FanOut::FanOut(RpcId first_rpc, RpcId stride, absl::Duration first_retry, absl::Duration last_retry)
    : next_rpc_(first_rpc), stride_(stride), first_retry_(first_retry), last_retry_(last_retry) {}

void FanOut::Start(const ShardCall& call, uint32_t num_shards, absl::Duration now,
                   CoordinatorActions* actions) {
  active_ = true;
  call_ = call;
  started_ = now;
  shards_.assign(num_shards, Shard{});
  for (uint32_t i = 0; i < num_shards; ++i) {
    shards_[i].pause = first_retry_;
    Call(i, actions);
  }
}

void FanOut::CallAnsweredAgain(CoordinatorActions* actions) {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    const bool is_called = shards_[i].rpc != 0 || shards_[i].retry_at != absl::InfiniteDuration();
    if (is_called || !shards_[i].reply.has_value()) continue;
    shards_[i].pause = first_retry_;
    Call(i, actions);
  }
}

void FanOut::Stop() {
  active_ = false;
  shards_.clear();
}

void FanOut::Call(uint32_t shard, CoordinatorActions* actions) {
  shards_[shard].rpc = next_rpc_;
  shards_[shard].retry_at = absl::InfiniteDuration();
  actions->push_back(coordinator_action::CallShard{next_rpc_, shard, call_});
  next_rpc_ += stride_;
}

std::optional<uint32_t> FanOut::ShardOf(RpcId rpc) const {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].rpc == rpc) return i;
  }
  return std::nullopt;
}

void FanOut::SetReply(uint32_t shard, ShardReply reply) {
  shards_[shard].rpc = 0;
  shards_[shard].reply = std::move(reply);
}

void FanOut::SetFailed(uint32_t shard, const absl::Status& status, absl::Duration now) {
  Shard& s = shards_[shard];
  s.rpc = 0;
  s.failure = status;
  s.retry_at = now + s.pause;
  s.pause = std::min(s.pause * 2, last_retry_);
}

bool FanOut::AllReplied() const { return active_ && !FirstMissing().has_value(); }

std::vector<ShardReply> FanOut::replies() const {
  std::vector<ShardReply> replies;
  for (const Shard& shard : shards_) replies.push_back(*shard.reply);
  return replies;
}

std::optional<uint32_t> FanOut::FirstMissing() const {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i].reply.has_value()) return i;
  }
  return std::nullopt;
}

void FanOut::Retry(absl::Duration now, CoordinatorActions* actions) {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].retry_at <= now) Call(i, actions);
  }
}

absl::Duration FanOut::NextWakeup() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Shard& shard : shards_) next = std::min(next, shard.retry_at);
  return next;
}

}  // namespace pushpull
