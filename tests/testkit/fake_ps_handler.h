// A PsHandler that records requests and answers as the test chooses.
#ifndef PUSHPULL_TESTS_TESTKIT_FAKE_PS_HANDLER_H_
#define PUSHPULL_TESTS_TESTKIT_FAKE_PS_HANDLER_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/wire/error_detail.h"
#include "common/wire/ps_handler.h"

namespace pushpull {

// How long a call of the tests may take.
inline constexpr absl::Duration kTimeout = absl::Seconds(60);

// The header of a chunk of step 5.
inline ps::PushChunk ChunkHeader(uint32_t chunk, uint32_t worker_id = 0) {
  ps::PushChunk header;
  header.mutable_key()->set_worker_id(worker_id);
  header.mutable_key()->set_step(5);
  header.set_chunk(chunk);
  return header;
}

// Thread-safe, but settings must be made before the first call.
class FakePsHandler : public PsHandler {
 public:
  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override {
    ps::JobReply reply;
    reply.set_protocol_version(request.protocol_version());
    reply.set_pipeline_config("train_config {}");
    done(reply);
  }
  void Register(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) override {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::LAYOUT_MISMATCH);
    detail.set_variable("MobilenetV2/Conv/weights");
    done(MakeError(detail, absl::StrCat("clone ", request.worker_id(), ": layouts differ")));
  }
  // Never answers.
  void Heartbeat(const ps::HeartbeatRequest&, Done<ps::HeartbeatReply> done) override {
    absl::MutexLock lock(&mutex_);
    held_.push_back(std::move(done));
  }
  void Commit(const ps::CommitRequest& request, Done<ps::CommitReply> done) override {
    absl::MutexLock lock(&mutex_);
    ++commits_;
    ps::CommitReply reply;
    reply.set_version(request.key().step());
    done(reply);
  }
  void GetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) override {
    ps::StatusReply reply;
    reply.set_version(7);
    done(reply);
  }
  void Checkpoint(const ps::CheckpointRequest&, Done<ps::CheckpointReply> done) override {
    ps::CheckpointReply reply;
    reply.set_step(8);
    done(reply);
  }
  void Drain(const ps::DrainRequest&, Done<ps::DrainReply> done) override {
    ps::DrainReply reply;
    reply.set_version(9);
    done(reply);
  }
  void Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) override {
    ps::EvictReply reply;
    reply.add_replicas(request.worker_id());
    done(reply);
  }
  void Scale(const ps::ScaleRequest& request, Done<ps::ScaleReply> done) override {
    ps::ScaleReply reply;
    reply.set_from_step(request.num_replicas());
    done(reply);
  }

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override {
    if (Crc32c(payload.data, payload.size_bytes) != header.crc32c()) {
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
      return MakeError(detail, absl::StrCat("chunk ", header.chunk(), ": bad checksum"));
    }
    absl::MutexLock lock(&mutex_);
    if (chunks_.count(header.chunk()) == 0 && header.chunk() != chunks_.size() && in_order) {
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
      return MakeError(detail, absl::StrCat("chunk ", header.chunk(), " out of order"));
    }
    ++chunk_calls_;
    chunks_[header.chunk()] = payload;
    return absl::OkStatus();
  }
  CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) override {
    if (hold_pushes) return Hold(std::move(done), &held_pushes_, &cancelled_pushes_);
    ps::PushReply reply;
    reply.set_level(ps::STAGED);
    reply.set_version(last.key().step());
    reply.set_staleness(last.chunk());
    done(reply);
    return nullptr;
  }
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override {
    if (hold_pulls) return Hold(std::move(done), &held_pulls_, &cancelled_pulls_);
    PullSnapshot snapshot;
    snapshot.epoch = request.epoch();
    snapshot.version = request.min_version();
    snapshot.shard = request.shard();
    snapshot.payload = weights;
    done(snapshot);
    return nullptr;
  }
  // Refuses a worker that has no grant.
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                        Done<ps::OpenSharedMemoryReply> done) override {
    if (!request.has_grant()) return done(absl::PermissionDeniedError("no grant"));
    {
      absl::MutexLock lock(&mutex_);
      ++opened_;
    }
    ps::OpenSharedMemoryReply reply;
    reply.set_shard_bytes(weights.size_bytes);
    done(reply);
  }

  void GetShardState(const ps::ShardStateRequest&, Done<ps::ShardStateReply> done) override {
    ps::ShardStateReply reply;
    reply.set_boot_id(11);
    done(reply);
  }
  void Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) override {
    ps::RestoreReply reply;
    reply.set_version(request.step());
    done(reply);
  }
  void MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) override {
    ps::NormReply reply;
    reply.add_variable_squared_norms(static_cast<double>(request.step()));
    done(reply);
  }
  void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) override {
    ps::ApplyReply reply;
    reply.set_version(request.step());
    done(reply);
  }
  void Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) override {
    ps::SnapshotReply reply;
    reply.set_size_bytes(request.step());
    done(reply);
  }
  // Refuses a run id other than "run".
  void EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) override {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::WRONG_RUN);
    if (request.run_id() != "run") return done(MakeError(detail, "another run"));
    done(ps::EndTaskReply());
  }

  // Returns everything pushed so far, in chunk order.
  std::string Pushed() const {
    absl::MutexLock lock(&mutex_);
    std::string all;
    for (const auto& [chunk, payload] : chunks_) all.append(payload.data, payload.size_bytes);
    return all;
  }
  int chunk_calls() const {
    absl::MutexLock lock(&mutex_);
    return chunk_calls_;
  }
  int commits() const {
    absl::MutexLock lock(&mutex_);
    return commits_;
  }
  // How often shared memory was granted.
  int opened() const {
    absl::MutexLock lock(&mutex_);
    return opened_;
  }
  size_t held_pulls() const {
    absl::MutexLock lock(&mutex_);
    return held_pulls_.size();
  }
  size_t held_pushes() const {
    absl::MutexLock lock(&mutex_);
    return held_pushes_.size();
  }
  // Each of these waits until calls have been answered, held or, if they were held, cancelled.
  // After half a minute the wait ends and the test fails.
  void AwaitCancelledPull() const { AwaitPositive(&cancelled_pulls_); }
  void AwaitCancelledPush() const { AwaitPositive(&cancelled_pushes_); }
  void AwaitChunks(int count) const {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return chunk_calls_ >= count; };
    Await(reached);
  }
  void AwaitHeldPull() const { AwaitOneOf(held_pulls_); }
  void AwaitHeldPush() const { AwaitOneOf(held_pushes_); }
  void AwaitHeldHeartbeat() const { AwaitOneOf(held_); }
  // Waits until a pull is held, then answers it.
  void AnswerHeldPull(const PullSnapshot& snapshot) {
    AwaitHeldPull();
    Done<PullSnapshot> done;
    {
      absl::MutexLock lock(&mutex_);
      if (held_pulls_.empty()) return;  // the wait has failed the test
      done = held_pulls_.front();
    }
    done(snapshot);
  }

  bool in_order = false;     // refuse a chunk that skips a number
  bool hold_pushes = false;  // FinishPush is never answered
  bool hold_pulls = false;   // Pull waits for AnswerHeldPull
  Payload weights;

 private:
  template <typename Reply>
  CancelFn Hold(Done<Reply> done, std::vector<Done<Reply>>* list, int* cancelled) {
    absl::MutexLock lock(&mutex_);
    list->push_back(std::move(done));
    return [this, cancelled] {
      absl::MutexLock cancel_lock(&mutex_);
      ++*cancelled;
    };
  }

  template <typename Reply>
  void AwaitOneOf(const std::vector<Done<Reply>>& list) const {
    absl::MutexLock lock(&mutex_);
    const auto held = [&list] { return !list.empty(); };
    Await(held);
  }
  void AwaitPositive(const int* count) const {
    absl::MutexLock lock(&mutex_);
    const auto reached = [count] { return *count > 0; };
    Await(reached);
  }
  template <typename Reached>
  void Await(const Reached& reached) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(30)));
  }

  mutable absl::Mutex mutex_;
  std::map<uint32_t, Payload> chunks_;
  std::vector<Done<ps::HeartbeatReply>> held_;
  std::vector<Done<ps::PushReply>> held_pushes_;
  std::vector<Done<PullSnapshot>> held_pulls_;
  int chunk_calls_ = 0;
  int commits_ = 0;
  int opened_ = 0;
  int cancelled_pulls_ = 0;
  int cancelled_pushes_ = 0;
};

// Payload bytes that vary with place and seed. The payload owns them.
inline Payload MakePayload(size_t size_bytes, uint32_t seed) {
  auto bytes = std::make_shared<std::string>(size_bytes, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i + 8 <= size_bytes; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes->data() + i, &state, 8);
  }
  return Payload{bytes, bytes->data(), size_bytes};
}

inline std::string ToString(const Payload& payload) {
  return std::string(payload.data, payload.size_bytes);
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_FAKE_PS_HANDLER_H_
