// Drives a shard whose store completes its work only when a test tells it to. The shard holds
// versions 3 and 4 of epoch 1, and has one chunk of two elements and one of one element.
#ifndef PUSHPULL_TESTS_PS_SERVER_CORE_SHARD_AGGREGATOR_DRIVER_H_
#define PUSHPULL_TESTS_PS_SERVER_CORE_SHARD_AGGREGATOR_DRIVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "ps_server/core/shard_aggregator.h"
#include "tests/ps_server/core/core_test_util.h"

namespace pushpull {

// Returns the only action of that type.
template <typename Action>
const Action& Only(const ShardActions& actions) {
  const Action* found = nullptr;
  for (const ShardAction& action : actions) {
    if (const Action* candidate = std::get_if<Action>(&action)) {
      EXPECT_EQ(found, nullptr) << "more than one action of the type";
      found = candidate;
    }
  }
  EXPECT_NE(found, nullptr) << "no action of the type among " << actions.size();
  static const Action& kNone = *new Action();
  return found == nullptr ? kNone : *found;
}

class ShardAggregatorTest : public testing::Test {
 protected:
  ShardAggregatorTest() { MakeShard(/*sync=*/true, /*tasks=*/2); }

  void MakeShard(bool sync, uint32_t tasks) {
    ShardOptions options;
    options.run_id = kRun;
    options.boot_id = 5;
    options.sync = sync;
    options.shard = 0;
    options.tasks = tasks;
    options.chunk_elements = {2, 1};
    options.held_versions = {{1, 3}, {1, 4}};
    shard_ = std::make_unique<ShardAggregator>(options);
  }

  ShardActions Restore(uint64_t epoch, uint64_t step) {
    shard_event::Restore event;
    event.call = ++call_;
    event.request.set_run_id(kRun);
    event.request.set_epoch(epoch);
    event.request.set_step(step);
    const ps::ShardStateReply state = shard_->State();
    for (const ps::HeldVersion& held : state.held()) {
      if (held.version() == step) event.request.set_version_epoch(held.epoch());
    }
    return shard_->Handle(event);
  }
  void Restored(uint64_t epoch, uint64_t step) {
    Only<shard_action::StoreRestore>(Restore(epoch, step));
    const ShardActions actions = shard_->Handle(shard_event::StoreRestored{""});
    EXPECT_TRUE(Only<shard_action::ReplyRestore>(actions).reply.ok());
  }

  ps::PushChunk Header(uint64_t step, uint32_t replica, uint64_t grant, uint32_t chunk) {
    ps::PushChunk header;
    header.mutable_key()->set_run_id(kRun);
    header.mutable_key()->set_epoch(2);
    header.mutable_key()->set_step(step);
    header.mutable_key()->set_replica(replica);
    header.mutable_key()->set_grant(grant);
    header.set_chunk(chunk);
    header.set_crc32c(100 + chunk);
    return header;
  }
  absl::Status Push(const ps::PushChunk& header, const absl::Status& verdict = absl::OkStatus()) {
    static const char kBytes[8] = {};
    return shard_->PushChunk(header, {nullptr, kBytes, header.chunk() == 0 ? 8u : 4u}, verdict);
  }
  void PushAll(uint64_t step, uint32_t replica, uint64_t grant) {
    EXPECT_TRUE(Push(Header(step, replica, grant, 0)).ok());
    EXPECT_TRUE(Push(Header(step, replica, grant, 1)).ok());
  }
  absl::StatusOr<ps::PushReply> Finish(const ps::PushChunk& last) {
    return Only<shard_action::ReplyPush>(shard_->Handle(shard_event::FinishPush{++call_, last}))
        .reply;
  }

  ps::ApplyRequest ApplyRequest(uint64_t step,
                                std::vector<std::pair<uint32_t, uint64_t>> replicas) {
    ps::ApplyRequest request;
    request.set_run_id(kRun);
    request.set_epoch(2);
    request.set_step(step);
    for (const auto& [replica, grant] : replicas) {
      ps::Contribution& contribution = *request.add_contributions();
      contribution.set_replica(replica);
      contribution.set_grant(grant);
      contribution.set_samples(replica + 1);
      contribution.set_sequence(1);
    }
    return request;
  }
  ShardActions Apply(const ps::ApplyRequest& request) {
    return shard_->Handle(shard_event::Apply{++call_, request});
  }
  void Applied(uint64_t step) {
    PushAll(step, 0, 10);
    EXPECT_EQ(Only<shard_action::StoreApply>(Apply(ApplyRequest(step, {{0, 10}}))).step, step);
    const ShardActions actions = shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
    EXPECT_EQ(Only<shard_action::ReplyApply>(actions).reply->version(), step);
  }
  ShardActions Pull(uint64_t min_version, bool exact = false,
                    const std::vector<uint32_t>& float32_chunks = {}) {
    shard_event::Pull event;
    event.request.mutable_float32_chunks()->Add(float32_chunks.begin(), float32_chunks.end());
    event.call = ++call_;
    event.request.set_run_id(kRun);
    event.request.set_epoch(2);
    event.request.set_min_version(min_version);
    event.request.set_exact(exact);
    return shard_->Handle(event);
  }
  ShardActions Snapshot(uint64_t step, uint64_t attempt = 1) {
    shard_event::Snapshot event;
    event.call = ++call_;
    event.request.set_run_id(kRun);
    event.request.set_epoch(2);
    event.request.set_step(step);
    event.request.set_attempt(attempt);
    return shard_->Handle(event);
  }

  std::unique_ptr<ShardAggregator> shard_;
  CallId call_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_CORE_SHARD_AGGREGATOR_DRIVER_H_
