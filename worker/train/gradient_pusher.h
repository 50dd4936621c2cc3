// Pushes contributions to all shards while backward still fills the gradient from its end.
#ifndef PUSHPULL_WORKER_TRAIN_GRADIENT_PUSHER_H_
#define PUSHPULL_WORKER_TRAIN_GRADIENT_PUSHER_H_

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

#include "common/clock.h"
#include "common/ps_client.h"
#include "common/sharding.h"
#include "common/trace/trace_writer.h"
#include "kernels/bfloat16.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

struct GradientPusherOptions {
  absl::Duration rpc_timeout = absl::Seconds(60);  // of one attempt of one stream
  ps::GradientEncoding encoding = ps::FLOAT32;     // as which the gradient is sent
  TraceRow* row = nullptr;  // if any, gets a span per contribution, from its first bytes to the
                            // last answer
};

// One contribution at a time: Start, Advance (any number), then Commit and Await, or Abandon. Those
// are called by the compute thread; the object's own thread sends.
class GradientPusher {
 public:
  // shards[i] is the client of shard i; they must outlive the object.
  GradientPusher(std::vector<PsClient*> shards, const Sharding& sharding, const Clock* clock,
                 const GradientPusherOptions& options);
  ~GradientPusher();
  GradientPusher(const GradientPusher&) = delete;
  GradientPusher& operator=(const GradientPusher&) = delete;

  // Begins the contribution `key`. commit_with_chunks: the commit rides on the last chunk of every
  // shard (one task, and asynchronous mode); else the caller commits after Finish. gradient has
  // total_elements of the sharding; nothing of it is read before Advance says so.
  void Start(const ps::PushKey& key, std::shared_ptr<const float> gradient,
             bool commit_with_chunks);

  // Elements [first_final, end) of the gradient will not change any more. Never blocks.
  void Advance(int64_t first_final);

  // The whole gradient is final. Never blocks.
  void Commit(const ps::CommitInfo& commit);
  // Blocks until every shard has answered (at most rpc_timeout after the start of the last stream)
  // and returns the reply of shard 0, or the first error. The gradient is free after it.
  absl::StatusOr<ps::PushReply> Await();

  // Sends the same contribution again from the start, after an error of Await that says that
  // nothing is known (UNAVAILABLE, DEADLINE_EXCEEDED). The servers ignore what they already have.
  absl::StatusOr<ps::PushReply> Repeat(const ps::CommitInfo& commit);

  // Gives the contribution up; returns when the gradient is not read any more.
  void Abandon();

 private:
  struct Job {
    ps::PushKey key;
    std::shared_ptr<const float> gradient;
    bool commit_with_chunks = false;
    int64_t first_final = 0;
    std::optional<ps::CommitInfo> commit;
    bool abandoned = false;
  };

  void RunThread();
  absl::StatusOr<ps::PushReply> SendAll();
  absl::StatusOr<ps::PushReply> FinishAll(
      const std::vector<std::unique_ptr<PushStream>>& streams) const;
  // These return false or nothing if the contribution was abandoned meanwhile.
  bool SendShard(int shard, PushStream* stream);
  // The chunk's elements as they are sent.
  Payload Encoded(const std::shared_ptr<const float>& gradient, const ElementRange& range);
  bool WaitForElements(int64_t first) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<ps::CommitInfo> WaitForCommit() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<PsClient*> shards_;
  const Sharding sharding_;
  const Clock* const clock_;
  const GradientPusherOptions options_;
  // The whole gradient where it is sent otherwise than it is. Shared with the transport.
  std::shared_ptr<Bfloat16> rounded_;

  absl::Mutex mutex_;
  Job job_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;  // a contribution is with the thread
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<ps::PushReply> result_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_GRADIENT_PUSHER_H_
