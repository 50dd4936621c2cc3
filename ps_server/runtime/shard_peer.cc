#include "ps_server/runtime/shard_peer.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/time/time.h"

#include "common/base/monotonic_wait.h"
#include "common/base/status_macros.h"
#include "ps_server/runtime/overloaded.h"

namespace pushpull {
namespace {

constexpr absl::Duration kEndTimeout = absl::Seconds(1);
constexpr absl::Duration kStateTimeout = absl::Seconds(5);
constexpr absl::Duration kStepTimeout = absl::Seconds(60);
constexpr absl::Duration kDiskTimeout = absl::Minutes(10);
// Longer calls are made in attempts of this length, so that Stop does not wait for a shard that
// does not answer. The shard takes a repetition for the call that it works on.
constexpr absl::Duration kAttemptTimeout = absl::Seconds(2);

// Returns a callback that converts a typed reply to ShardReply.
template <typename Reply>
std::function<void(absl::StatusOr<Reply>)> Typed(ShardPeer::Done done) {
  return [done = std::move(done)](absl::StatusOr<Reply> reply) {
    if (!reply.ok()) return done(reply.status());
    done(ShardReply(*std::move(reply)));
  };
}

class LocalShardPeer final : public ShardPeer {
 public:
  explicit LocalShardPeer(ShardRuntime* runtime) : runtime_(runtime) {}

  void Call(const ShardCall& call, Done done) override {
    std::visit(Overloaded{
                   [&](const shard_call::GetState&) {
                     runtime_->GetState(Typed<ps::ShardStateReply>(std::move(done)));
                   },
                   [&](const shard_call::Restore& c) {
                     runtime_->Restore(c.request, Typed<ps::RestoreReply>(std::move(done)));
                   },
                   [&](const shard_call::MeasureNorm& c) {
                     runtime_->MeasureNorm(c.request, Typed<ps::NormReply>(std::move(done)));
                   },
                   [&](const shard_call::Apply& c) {
                     runtime_->Apply(c.request, Typed<ps::ApplyReply>(std::move(done)));
                   },
                   [&](const shard_call::Snapshot& c) {
                     runtime_->Snapshot(c.request, Typed<ps::SnapshotReply>(std::move(done)));
                   },
               },
               call);
  }

  void Close(const absl::Status& reason) override { runtime_->Close(reason); }
  absl::Status EndTask(const ps::EndTaskRequest&) override { return absl::OkStatus(); }
  void Stop() override {}  // it has no threads

 private:
  ShardRuntime* const runtime_;
};

class RemoteShardPeer final : public ShardPeer {
 public:
  explicit RemoteShardPeer(std::unique_ptr<PsClient> client) : client_(std::move(client)) {}
  ~RemoteShardPeer() override { Stop(); }

  void Call(const ShardCall& call, Done done) override {
    SerialExecutor& thread = std::holds_alternative<shard_call::Snapshot>(call)   ? disk_thread_
                             : std::holds_alternative<shard_call::GetState>(call) ? state_thread_
                                                                                  : step_thread_;
    thread.Run([this, call, done = std::move(done)] { CallNow(call, done); });
  }

  void Close(const absl::Status&) override {}
  absl::Status EndTask(const ps::EndTaskRequest& request) override {
    PP_ASSIGN_OR_RETURN(const ps::ShardStateReply state, client_->GetShardState({}, kEndTimeout));
    ps::EndTaskRequest addressed = request;
    addressed.set_boot_id(state.boot_id());
    return client_->EndTask(addressed, kEndTimeout).status();
  }
  void Stop() override {
    stopped_.store(true);
    for (SerialExecutor* thread : {&state_thread_, &step_thread_, &disk_thread_}) thread->Stop();
  }

 private:
  void CallNow(const ShardCall& call, const Done& done) {
    std::visit(
        Overloaded{
            [&](const shard_call::GetState&) {
              // Calls that still wait here must not hold up the end of the server.
              if (stopped_.load()) return done(absl::CancelledError("the server ends"));
              Typed<ps::ShardStateReply>(done)(client_->GetShardState({}, kStateTimeout));
            },
            [&](const shard_call::Restore& c) {
              Typed<ps::RestoreReply>(done)(Repeat(&PsClient::Restore, c.request, kDiskTimeout));
            },
            [&](const shard_call::MeasureNorm& c) {
              Typed<ps::NormReply>(done)(Repeat(&PsClient::MeasureNorm, c.request, kStepTimeout));
            },
            [&](const shard_call::Apply& c) {
              Typed<ps::ApplyReply>(done)(Repeat(&PsClient::Apply, c.request, kStepTimeout));
            },
            [&](const shard_call::Snapshot& c) {
              Typed<ps::SnapshotReply>(done)(Repeat(&PsClient::Snapshot, c.request, kDiskTimeout));
            },
        },
        call);
  }

  // Calls the function until it is answered, the timeout has passed or the peer is stopped.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Repeat(absl::StatusOr<Reply> (PsClient::*function)(const Request&,
                                                                           absl::Duration),
                               const Request& request, absl::Duration timeout) {
    const Deadline deadline(timeout);
    for (;;) {
      absl::StatusOr<Reply> reply =
          (client_.get()->*function)(request, std::min(kAttemptTimeout, deadline.Left()));
      if (!absl::IsDeadlineExceeded(reply.status()) || deadline.HasPassed() || stopped_.load()) {
        return reply;
      }
    }
  }

  const std::unique_ptr<PsClient> client_;
  std::atomic<bool> stopped_{false};
  SerialExecutor state_thread_;
  SerialExecutor step_thread_;
  SerialExecutor disk_thread_;
};

}  // namespace

std::unique_ptr<ShardPeer> MakeLocalShardPeer(ShardRuntime* runtime) {
  return std::make_unique<LocalShardPeer>(runtime);
}

std::unique_ptr<ShardPeer> MakeRemoteShardPeer(std::unique_ptr<PsClient> client) {
  return std::make_unique<RemoteShardPeer>(std::move(client));
}

}  // namespace pushpull
