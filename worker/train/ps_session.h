// One clone's conversation with all parameter-server tasks: finds the job, registers, pulls and
// commits, repeats what was lost on the way, and gives up by name when a peer stays silent past the
// deadline.
#ifndef PUSHPULL_WORKER_TRAIN_PS_SESSION_H_
#define PUSHPULL_WORKER_TRAIN_PS_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "common/clock.h"
#include "common/ps_client.h"
#include "common/sharding.h"
#include "common/trace/clock_offset.h"
#include "common/variable_layout.h"
#include "worker/train/clone_identity.h"

namespace pushpull {

// Thread-safe: the trainer and the heartbeat thread share it. Every call blocks until it has an
// answer, the peer deadline has passed without one (DEADLINE_EXCEEDED naming the peer), or Stop
// (CANCELLED).
class PsSession {
 public:
  struct Options {
    uint32_t worker_id = 0;                           // worker_index * num_clones + clone
    uint32_t num_replicas = 1;                        // clones over all workers
    std::string peer_name;                            // "host:pid", for the server's messages
    absl::Duration peer_deadline = absl::Minutes(5);  // silence of a server after which we give up
    absl::Duration rpc_timeout = absl::Seconds(30);   // one attempt
    uint64_t jitter_seed = 1;
    CloneIdentity identity = {};  // session 0: a random one
    // Null, or learns the clock of ps task 0 from every answer that tells it.
    ClockOffset* server_clock = nullptr;
  };
  using ClientFactory = std::function<std::unique_ptr<PsClient>(const std::string& address)>;
  // Told once a second while a peer does not answer: "waiting for ps task 0 at 127.0.0.1:2222 12
  // s".
  using WaitReporter = std::function<void(const std::string&)>;

  PsSession(Options options, ClientFactory factory, Clock* clock, WaitReporter on_wait);
  ~PsSession();

  // Asks the coordinator what is trained and connects to the other tasks. `addresses` is the
  // coordinator's, or all tasks' in order; one address stands for a server that tells the others
  // itself.
  absl::Status Connect(const std::vector<std::string>& addresses);
  // Valid after Connect.
  const ps::JobReply& job() const { return job_; }
  std::vector<PsClient*> shards() const;

  // Announces this clone; afterwards epoch, version and grants are the server's. Also the way back
  // in after EPOCH_CHANGED or FENCED. LAYOUT_MISMATCH names the first variable that differs.
  absl::Status Register(const VariableLayout& layout);

  // Renews the lease and takes over new grants; one attempt. STOPPED when training was stopped,
  // EVICTED when an operator has taken this clone out of the job.
  absl::Status Heartbeat(const ps::CloneProgress& progress);

  // Fills `flat` (all shards) with one version: min_version exactly, or at least that. Answers
  // DEADLINE_EXCEEDED after poll_timeout when the version is not there yet; errors with an
  // ErrorDetail come back at once. Returns the version. on_elements, if any, is told from the
  // calling thread which elements [first, end) are there and verified, from 0 on without gaps, and
  // before that once that the first bytes come (0, 0); after an error the next pull begins anew.
  using ElementsReady = std::function<void(int64_t first, int64_t end)>;
  absl::StatusOr<uint64_t> Pull(uint64_t min_version, bool exact, absl::Duration poll_timeout,
                                absl::Span<float> flat, const ElementsReady& on_elements = nullptr);

  absl::StatusOr<ps::CommitReply> Commit(const ps::PushKey& key, const ps::CommitInfo& info);

  // Runs `call` until it succeeds, fails for a reason of its own, or the peer deadline has passed.
  // Nothing is repeated any more (the last error comes back) once a heartbeat has said that
  // training is over.
  absl::Status Retry(absl::string_view peer, absl::FunctionRef<absl::Status()> call);

  // The server has applied this version: known from an answer that did not pass through here.
  void NoteVersion(uint64_t version);

  // For loops of the caller's own around Pull: DEADLINE_EXCEEDED once one of the servers has been
  // asked and has answered nothing for the peer deadline (PeerLost), else OK.
  absl::Status CheckContact();

  ps::PushKey MakeKey(uint64_t step, const ps::SlotGrant& grant, uint64_t base_version) const;
  std::vector<ps::SlotGrant> grants() const;
  uint64_t epoch() const;
  uint64_t version() const;  // as last heard
  absl::Duration lease() const;
  bool training_done() const;
  // STOPPED, naming the failure, or EVICTED, once a heartbeat has said so; else OK.
  absl::Status stop_reason() const;
  std::string waiting_for() const;  // the server's words, as last heard
  double learning_rate() const;     // as last heard

  // All calls under way and later ones end with CANCELLED soon.
  void Stop() { stopped_.store(true); }

 private:
  absl::Status PullShard(int shard, uint64_t min_version, bool exact, absl::Duration poll_timeout,
                         absl::Span<float> flat, const ElementsReady& on_elements,
                         uint64_t* version);
  std::string PeerName(int shard) const;
  // An answer to a question of `sent` has come and tells the server's clock (0: it does not).
  void NoteServerClock(absl::Duration sent, int64_t server_nanoseconds);
  // What came of a call to a shard: it answered, or nothing is known.
  void NoteAnswer(int shard, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const CloneIdentity identity_;
  const ClientFactory factory_;
  Clock* const clock_;
  const WaitReporter on_wait_;
  std::atomic<bool> stopped_{false};

  // Set by Connect, unchanged afterwards.
  std::vector<std::unique_ptr<PsClient>> clients_;
  ps::JobReply job_;

  mutable absl::Mutex mutex_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ps::SlotGrant> grants_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(10);
  bool training_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  double learning_rate_ ABSL_GUARDED_BY(mutex_) = 0.0;
  // Per shard: since when calls to it have failed; infinite while they do not.
  std::vector<absl::Duration> silent_since_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_wait_report_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

// True for errors after which the same call may be made again: nobody knows what the server did.
bool IsTransient(const absl::Status& status);
// True when the session has given a server up after the peer deadline.
bool IsPeerLost(const absl::Status& status);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_PS_SESSION_H_
