// A PsClient whose calls all fail. Tests override the calls that they need.
#ifndef PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_
#define PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_

#include <memory>
#include <string>

#include "common/wire/ps_client.h"

namespace pushpull {

// StartPush returns a null stream, so a test that pushes has to override it.
class RefusingPsClient : public PsClient {
 public:
  const std::string& address() const override { return address_; }
  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::RegisterReply> Register(const ps::RegisterRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::HeartbeatReply> Heartbeat(const ps::HeartbeatRequest&,
                                               absl::Duration) override {
    return Refused();
  }
  std::unique_ptr<PushStream> StartPush(absl::Duration) override { return nullptr; }
  absl::StatusOr<ps::CommitReply> Commit(const ps::CommitRequest&, absl::Duration) override {
    return Refused();
  }
  absl::Status Pull(const ps::PullRequest&, absl::Duration, PullSink) override { return Refused(); }
  absl::StatusOr<ps::StatusReply> GetStatus(absl::Duration) override { return Refused(); }
  absl::StatusOr<ps::CheckpointReply> Checkpoint(const ps::CheckpointRequest&,
                                                 absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::DrainReply> Drain(const ps::DrainRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::EvictReply> Evict(const ps::EvictRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::ShardStateReply> GetShardState(absl::Duration) override { return Refused(); }
  absl::StatusOr<ps::RestoreReply> Restore(const ps::RestoreRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::NormReply> MeasureNorm(const ps::ApplyRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::ApplyReply> Apply(const ps::ApplyRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::SnapshotReply> Snapshot(const ps::SnapshotRequest&, absl::Duration) override {
    return Refused();
  }
  absl::StatusOr<ps::EndTaskReply> EndTask(const ps::EndTaskRequest&, absl::Duration) override {
    return Refused();
  }

 private:
  static absl::Status Refused() { return absl::UnimplementedError("not for this test"); }

  const std::string address_ = "test";
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_REFUSING_PS_CLIENT_H_
