// The coordinator's calls to a shard of another process, over real sockets.
#include "ps_server/runtime/shard_peer.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/test_peer_secret.h"

namespace pushpull {
namespace {

// Answers a snapshot when the test says so, and from then on at once. Refuses to apply step 13.
class SlowShard final : public FakePsHandler {
 public:
  void Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) override {
    {
      absl::MutexLock lock(&mutex_);
      ++snapshots_;
      snapshot_ = [this, request, done] { FakePsHandler::Snapshot(request, done); };
      if (!is_written_) return;
    }
    FakePsHandler::Snapshot(request, std::move(done));
  }
  void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) override {
    if (request.step() != 13) return FakePsHandler::Apply(request, std::move(done));
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::EPOCH_CHANGED);
    detail.set_epoch(8);
    done(MakeError(detail, "epoch 7 is over"));
  }
  void EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) override {
    absl::MutexLock lock(&mutex_);
    ended_ = request;
    if (silent_) return held_.push_back(std::move(done));
    done(ps::EndTaskReply());
  }
  void AnswerSnapshot() {
    std::function<void()> answer;
    {
      absl::MutexLock lock(&mutex_);
      const auto there = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return snapshot_ != nullptr; };
      EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(30)));
      answer = std::exchange(snapshot_, nullptr);
      is_written_ = true;
    }
    if (answer != nullptr) answer();
  }
  // Waits until the snapshot was asked for so many times.
  void AwaitSnapshots(int times) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return snapshots_ >= times; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(30)));
  }
  void SetSilent() {
    absl::MutexLock lock(&mutex_);
    silent_ = true;
  }
  std::optional<ps::EndTaskRequest> ended() {
    absl::MutexLock lock(&mutex_);
    return ended_;
  }

 private:
  absl::Mutex mutex_;
  std::function<void()> snapshot_;
  int snapshots_ = 0;
  bool is_written_ = false;
  std::optional<ps::EndTaskRequest> ended_;
  std::vector<Done<ps::EndTaskReply>> held_;
  bool silent_ = false;
};

// Holds the single answer of a call.
class Reply {
 public:
  ShardPeer::Done done() {
    return [this](absl::StatusOr<ShardReply> reply) {
      EXPECT_FALSE(reply_.has_value()) << "the call was answered twice";
      reply_ = std::move(reply);
      here_.Notify();
    };
  }
  bool here() const { return here_.HasBeenNotified(); }
  const absl::StatusOr<ShardReply>& Wait() {
    CHECK(here_.WaitForNotificationWithTimeout(absl::Seconds(60))) << "no answer";
    return *reply_;
  }
  template <typename T>
  T As() {
    const absl::StatusOr<ShardReply>& reply = Wait();
    if (reply.ok() && std::holds_alternative<T>(*reply)) return std::get<T>(*reply);
    ADD_FAILURE() << "the answer has another type: " << reply.status();
    return T();
  }

 private:
  std::optional<absl::StatusOr<ShardReply>> reply_;
  absl::Notification here_;
};

class RemoteShardPeerTest : public ::testing::Test {
 protected:
  RemoteShardPeerTest() {
    auto server = StartGrpcPsServer("127.0.0.1:0", &shard_, WithPeerSecret());
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    peer_ = MakeRemoteShardPeer(MakeGrpcPsClient(server_->address(), WithPeerSecret()));
  }
  static shard_call::Apply ApplyOf(uint64_t step) {
    shard_call::Apply call;
    call.request.set_step(step);
    return call;
  }

  SlowShard shard_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<ShardPeer> peer_;
};

TEST_F(RemoteShardPeerTest, EachCallGetsItsTypeOfAnswer) {
  Reply state, restored, norm, applied, saved;
  peer_->Call(shard_call::GetState{}, state.done());
  EXPECT_EQ(state.As<ps::ShardStateReply>().boot_id(), 11);
  shard_call::Restore restore;
  restore.request.set_step(3);
  peer_->Call(restore, restored.done());
  EXPECT_EQ(restored.As<ps::RestoreReply>().version(), 3);
  shard_call::MeasureNorm measure;
  measure.request.set_step(4);
  peer_->Call(measure, norm.done());
  EXPECT_EQ(norm.As<ps::NormReply>().variable_squared_norms(0), 4.0);
  peer_->Call(ApplyOf(5), applied.done());
  EXPECT_EQ(applied.As<ps::ApplyReply>().version(), 5);
  shard_call::Snapshot snapshot;
  snapshot.request.set_step(6);
  peer_->Call(snapshot, saved.done());
  shard_.AnswerSnapshot();
  EXPECT_EQ(saved.As<ps::SnapshotReply>().size_bytes(), 6);
}

TEST_F(RemoteShardPeerTest, ASlowSnapshotDoesNotBlockOtherCalls) {
  Reply saved, applied, state;
  peer_->Call(shard_call::Snapshot{}, saved.done());
  peer_->Call(ApplyOf(5), applied.done());
  peer_->Call(shard_call::GetState{}, state.done());
  EXPECT_EQ(applied.As<ps::ApplyReply>().version(), 5);
  EXPECT_EQ(state.As<ps::ShardStateReply>().boot_id(), 11);
  EXPECT_FALSE(saved.here());
  shard_.AnswerSnapshot();
  EXPECT_TRUE(saved.Wait().ok());
}

// The coordinator acts on the error's detail, so the detail has to survive the connection.
TEST_F(RemoteShardPeerTest, RefusalsKeepTheirDetail) {
  Reply reply;
  peer_->Call(ApplyOf(13), reply.done());
  const ps::ErrorDetail detail = GetErrorDetail(reply.Wait().status());
  EXPECT_EQ(detail.kind(), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_EQ(detail.epoch(), 8);
}

TEST_F(RemoteShardPeerTest, CallsFailWhenTheProcessEndsAndWorkAfterARestart) {
  Reply before, lost;
  peer_->Call(ApplyOf(1), before.done());
  EXPECT_TRUE(before.Wait().ok());
  const std::string address = server_->address();
  server_.reset();
  peer_->Call(ApplyOf(2), lost.done());
  EXPECT_TRUE(absl::IsUnavailable(lost.Wait().status())) << lost.Wait().status();
  auto server = StartGrpcPsServer(address, &shard_, WithPeerSecret());
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  absl::Status status = absl::UnavailableError("");
  for (int attempt = 0; !status.ok() && attempt < 600; ++attempt) {
    Reply again;
    peer_->Call(ApplyOf(2), again.done());
    status = again.Wait().status();
    if (!status.ok()) absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(RemoteShardPeerTest, DestructionAnswersPendingCalls) {
  Reply saved;
  peer_->Call(shard_call::Snapshot{}, saved.done());
  std::thread answerer([this] { shard_.AnswerSnapshot(); });
  peer_.reset();
  answerer.join();
  EXPECT_TRUE(saved.here());
}

TEST_F(RemoteShardPeerTest, ASnapshotThatTakesLongIsAnsweredOnce) {
  Reply saved;
  peer_->Call(shard_call::Snapshot{}, saved.done());
  shard_.AwaitSnapshots(2);
  EXPECT_FALSE(saved.here());
  shard_.AnswerSnapshot();
  EXPECT_TRUE(saved.Wait().ok()) << saved.Wait().status();
}

// The task is frozen, or its disk is. Nobody may wait ten minutes for the end of the coordinator.
TEST_F(RemoteShardPeerTest, StopWaitsForNoShardThatDoesNotAnswer) {
  Reply saved;
  peer_->Call(shard_call::Snapshot{}, saved.done());
  shard_.AwaitSnapshots(1);
  peer_->Stop();
  ASSERT_TRUE(saved.here());
  EXPECT_TRUE(absl::IsDeadlineExceeded(saved.Wait().status())) << saved.Wait().status();
}

TEST_F(RemoteShardPeerTest, AnnouncesTheEndOfTheJob) {
  ps::EndTaskRequest request;
  request.set_run_id("run");
  request.set_how(ps::EndTaskRequest::STOPPED);
  request.set_reason("disk full");
  EXPECT_TRUE(peer_->EndTask(request).ok());
  ASSERT_TRUE(shard_.ended().has_value());
  EXPECT_EQ(shard_.ended()->reason(), "disk full");
  EXPECT_EQ(shard_.ended()->boot_id(), 11) << "the call must name this process of the task";
  shard_.SetSilent();
  EXPECT_TRUE(absl::IsDeadlineExceeded(peer_->EndTask(request)));
}

}  // namespace
}  // namespace pushpull
