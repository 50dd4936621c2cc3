// Pushes contributions to all shards. It sends the end of a gradient while the backward pass still
// computes its front.
#ifndef PUSHPULL_WORKER_CLIENT_GRADIENT_PUSHER_H_
#define PUSHPULL_WORKER_CLIENT_GRADIENT_PUSHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/model/sharding.h"
#include "common/trace/trace_writer.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/ps_client.h"
#include "protos/parameter_server.pb.h"
#include "worker/client/error_feedback.h"
#include "worker/client/exact_elements.h"

namespace pushpull {

struct GradientPusherOptions {
  // The longest wait for a server to take more bytes, or to answer.
  absl::Duration rpc_timeout = absl::Seconds(60);
  const GradientCodec* codec = &Float32Codec();  // on the wire
  // If not null, gets a span per contribution, from its first bytes to the last answer.
  TraceRow* row = nullptr;
  // The elements that are moving statistics, in ascending order. Only error feedback uses them.
  std::vector<ElementRange> moving_statistics = {};
  // The elements that no codec rounds. Chunks that have some are sent as float32.
  ExactElements exact = ExactElements();
};

// Handles one contribution at a time: call Start, then Advance any number of times, then either
// Commit and Await, or Abandon. Thread rule: one thread, the training thread, makes all calls,
// except that Advance may be called from any thread between Start and Commit or Abandon. The object
// has a second thread that sends.
class GradientPusher {
 public:
  // shards[i] is the client of shard i. The clients and `clock` must outlive the object.
  GradientPusher(std::vector<PsClient*> shards, const Sharding& sharding, const Clock* clock,
                 const GradientPusherOptions& options);
  ~GradientPusher();
  GradientPusher(const GradientPusher&) = delete;
  GradientPusher& operator=(const GradientPusher&) = delete;

  // Begins the contribution `key`. `gradient` has total_elements() of the sharding. Its elements
  // are not read before Advance or Commit says that they are final. With `commit_with_chunks`, the
  // last chunk sent to each shard carries the commit; this is for jobs with one ps task. Otherwise
  // the caller commits with PsClient::Commit after Await. Never blocks.
  void Start(const ps::PushKey& key, std::shared_ptr<const float> gradient,
             bool commit_with_chunks);

  // Says that elements [first_final, total_elements) of the gradient are final. Never blocks.
  void Advance(int64_t first_final);

  // Says that the whole gradient is final, and what to commit. Never blocks.
  void Commit(const ps::CommitInfo& commit);
  // Blocks until every shard has answered or one has failed: as long as the shards take bytes, and
  // at most rpc_timeout for each answer. Returns the reply of shard 0, or the first error;
  // UNAVAILABLE also if a shard did not get all chunks. The gradient may be overwritten afterwards.
  absl::StatusOr<ps::PushReply> Await();

  // Returns the shard whose error Await or Repeat returned last; 0 if there was none.
  int failed_shard() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends the last contribution again from the start, and blocks like Await. For use after Await
  // returned an error that leaves the outcome unknown (UNAVAILABLE, DEADLINE_EXCEEDED). Servers
  // ignore the chunks that they have.
  absl::StatusOr<ps::PushReply> Repeat(const ps::CommitInfo& commit);
  // Returns whether Repeat was called since Start. Only the thread that calls these may ask.
  bool was_repeated() const { return repeated_; }

  // Says what became of the last contribution. If the server has accepted it, the next one makes up
  // for what its encoding has lost (error_feedback.h). `repeated`: the message that makes it count,
  // which is the push or a commit of its own, was sent more than once. A contribution that is sent
  // again before this call, by Repeat or from Start, has the same bytes. Call it after Await,
  // before the next Start; not at all for a contribution that was abandoned, refused or void.
  void NoteOutcome(ps::PushReply::Outcome outcome, bool repeated);

  // Gives up the contribution. Blocks until the gradient is not read any more: at most rpc_timeout,
  // if a chunk is being sent to a server that does not read.
  void Abandon();

 private:
  struct Job {
    ps::PushKey key;
    std::shared_ptr<const float> gradient;
    bool commit_with_chunks = false;
    int64_t first_final = 0;  // elements from here to the end may be sent
    std::optional<ps::CommitInfo> commit;
    bool abandoned = false;
  };

  void RunThread();
  absl::StatusOr<ps::PushReply> SendAll();
  absl::StatusOr<ps::PushReply> FinishAll(const std::vector<std::unique_ptr<PushStream>>& streams);
  // SendShard, WaitForElements and WaitForCommit return false or nullopt if the contribution has
  // been abandoned.
  bool SendShard(int shard, PushStream* stream);
  const GradientCodec& CodecOf(int shard, int chunk) const;
  // Returns a chunk of the gradient, encoded with CodecOf.
  Payload Encoded(const std::shared_ptr<const float>& gradient, int shard, int chunk);
  bool WaitForElements(int64_t first) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<ps::CommitInfo> WaitForCommit() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<PsClient*> shards_;
  const Sharding sharding_;
  const Clock* const clock_;
  const GradientPusherOptions options_;
  // Holds the encoded chunks; null if the gradient is sent as it is. Shared with the transport.
  std::shared_ptr<char[]> encoded_;
  std::vector<std::vector<int64_t>> encoded_at_;  // by shard and chunk: where it lies in encoded_
  // Null if the codec does not need it. Used by the sending thread while it has a contribution, and
  // by the training thread in between.
  std::unique_ptr<ErrorFeedback> feedback_;
  bool repeated_ = false;  // was_repeated; used by the training thread

  mutable absl::Mutex mutex_;
  Job job_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;  // the sending thread has a contribution
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<ps::PushReply> result_ ABSL_GUARDED_BY(mutex_);
  int failed_shard_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_GRADIENT_PUSHER_H_
