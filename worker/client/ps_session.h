// One clone's connection to all parameter-server tasks. Fetches the job, registers the clone,
// sends heartbeats, pulls and commits. Gives up a server that stays silent for the peer deadline,
// with an error that names it.
#ifndef PUSHPULL_WORKER_CLIENT_PS_SESSION_H_
#define PUSHPULL_WORKER_CLIENT_PS_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "common/base/clock.h"
#include "common/model/variable_layout.h"
#include "common/wire/default_lease.h"
#include "common/wire/ps_client.h"
#include "worker/client/exact_elements.h"
#include "worker/client/peer_errors.h"
#include "worker/client/ps_session_options.h"

namespace pushpull {

// Thread-safe after Connect: the training thread and the heartbeat thread share it.
//
// Connect, AwaitsVariables, Register, Commit and Retry block and repeat the call until it is
// answered, until all attempts have failed for the peer deadline (DEADLINE_EXCEEDED, naming the
// peer), or until Stop (CANCELLED). Declare and Heartbeat make one attempt, and Pull one per shard.
// The peer deadline counts from the end of the first attempt that failed: a process that was frozen
// during an attempt makes another one before it gives the server up. A warning in the log says why
// a server is waited for, as soon as that has lasted for two seconds.
class PsSession {
 public:
  using Options = PsSessionOptions;
  using ClientFactory = std::function<std::unique_ptr<PsClient>(const std::string& address)>;
  // Called about once a second, from the thread that waits, with the name of a server that does not
  // answer, or with its name and the reason why it is not ready, or with a text of ReportWait.
  using WaitReporter = std::function<void(const std::string&)>;

  PsSession(Options options, ClientFactory factory, Clock* clock, WaitReporter on_wait);
  ~PsSession();

  // Fetches the job from the coordinator and makes clients for the other tasks. Call it once,
  // before anything else. `addresses` has the addresses of all tasks in order, or only that of the
  // coordinator, which knows the others (AddressOfTask).
  // INVALID_ARGUMENT: no address, or another number of addresses than the job has tasks.
  // FAILED_PRECONDITION: the server speaks another protocol version; or plaintext would leave this
  // machine for a task that task 0 announces, and Options::security does not allow that.
  // INTERNAL: the server's list of tasks contradicts itself.
  absl::Status Connect(const std::vector<std::string>& addresses);
  const ps::JobReply& job() const { return job_; }  // valid after Connect
  std::vector<PsClient*> shards() const;            // valid after Connect
  // The run, 16 bytes; valid after Connect. Unlike job().run_id() it may change until the clone has
  // registered: a server that is started again before its train_dir names a run begins another one.
  std::string run_id() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends one part of a declaration, after it has filled in who declares; makes one attempt
  // (declare_variables.h). CANCELLED: Stop was called. JOB_CHANGED: see Register.
  absl::StatusOr<ps::DeclareReply> Declare(ps::DeclareRequest part);
  // Reports what the caller waits for, at most once a second.
  void ReportWait(const std::string& what) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks the coordinator whether the job still awaits its variables.
  absl::StatusOr<bool> AwaitsVariables();

  // What the gradients are computed with, if that is not known when the session is made. Empty: not
  // known. Call it before the first Register.
  void set_arithmetic(ps::Arithmetic arithmetic) { arithmetic_ = std::move(arithmetic); }

  // Registers this clone, and takes over epoch, version, lease, grants and the last step from the
  // answer. num_images: number of training images. Call it again after EPOCH_CHANGED or FENCED.
  // From the second registration on the clone names the number of replicas that the server has
  // told: a spare with other flags must not set the number of a job whose server has restarted.
  // FAILED_PRECONDITION with LAYOUT_MISMATCH: names the first variable that differs.
  // FAILED_PRECONDITION without it: the job has another number of clones or of training images.
  // FAILED_PRECONDITION with JOB_CHANGED: the server has other settings than job() says, because it
  // was started again with others. Another session can go on.
  // ALREADY_EXISTS: after the lease, and at least 30 s, another session holds the worker_id or live
  // clones have other data.
  absl::Status Register(const VariableLayout& layout, uint64_t num_images);

  // Renews the lease, and takes over version and grants from the answer. Makes one attempt, which
  // takes at most rpc_timeout or the lease (at least 1 s), whichever is shorter.
  // CANCELLED with STOPPED: training was stopped by a failure, which the message names.
  // PERMISSION_DENIED with EVICTED: an administrator has removed this clone from the job.
  absl::Status Heartbeat(const ps::CloneProgress& progress);

  // Tells the server that this clone ends, so that others need not wait for its lease. Makes one
  // attempt of at most 1 s. If the last heartbeat was not answered, it makes none and returns OK.
  absl::Status Leave();

  // Pulls the variables of all shards into `flat`, one shard after the other, and returns the
  // version. Options::weight_codec decides how they are rounded. With `exact` it is min_version in
  // all shards. Otherwise each shard sends min_version or a later one; the oldest is returned.
  //
  // Makes one attempt per shard, which blocks as long as chunks arrive, and for at most
  // poll_timeout plus rpc_timeout for each of them; Stop does not shorten it.
  // DEADLINE_EXCEEDED: the shard has not reached the version within poll_timeout.
  // DATA_LOSS: a shard sent something else than was asked for.
  //
  // `on_elements` may be null. It is called on the calling thread: first with (0, 0) when the first
  // bytes arrive, then with each range of elements [first, end) that has arrived and passed its
  // checksum. Ranges follow one another without gaps, and begin at 0 in every pull.
  using ElementsReady = std::function<void(int64_t first, int64_t end)>;
  absl::StatusOr<uint64_t> Pull(uint64_t min_version, bool exact, absl::Duration poll_timeout,
                                absl::Span<float> flat, const ElementsReady& on_elements = nullptr);

  // Repeats the commit as Retry does. *attempts is set to the number of times that it was sent.
  absl::StatusOr<ps::CommitReply> Commit(const ps::PushKey& key, const ps::CommitInfo& info,
                                         int* attempts);

  // Repeats `call`, with growing pauses, until it returns OK or an error that is not transient, or
  // until the peer deadline has passed. Returns the last error once a heartbeat has said that
  // training is over. `shard` returns the ps task at which the last call failed, for messages.
  absl::Status Retry(absl::FunctionRef<int()> shard, absl::FunctionRef<absl::Status()> call);
  absl::Status Retry(int shard, absl::FunctionRef<absl::Status()> call) {
    return Retry([shard] { return shard; }, call);
  }

  // Takes over the applied version from an answer that the caller got by itself, as to a push.
  void NoteVersion(uint64_t version);
  // Forgets that pulls have failed. For a caller that does not repeat them.
  void ForgetPulls();
  // For callers that repeat Pull themselves. Never blocks. CANCELLED: Stop was called.
  // DEADLINE_EXCEEDED: all pulls from a server, or all heartbeats, have failed for the peer
  // deadline (IsPeerLost). Neither makes up for the other.
  absl::Status CheckContact();
  // For long computations. Returns OK as long as their result may be of use; otherwise the error of
  // CheckContact or stop_reason, or CANCELLED if training is done. Never blocks.
  absl::Status CheckWanted();

  // Returns whether the answer to a heartbeat was that the clone has to register (EPOCH_CHANGED),
  // and it has not done so since.
  bool has_to_register() const;
  ps::PushKey MakeKey(uint64_t step, const ps::ReplicaGrant& grant, uint64_t base_version) const;
  std::vector<ps::ReplicaGrant> grants() const;
  uint64_t epoch() const;
  uint64_t version() const;  // the newest one known to be applied in this epoch
  absl::Duration lease() const;
  uint64_t open_step() const;  // the first not applied at the last registration or heartbeat
  // Returns the number of replicas of the job at that time, and before the first registration
  // Options::num_replicas.
  uint32_t num_replicas() const;
  // Sync: whether the clone has no replica of its own because the job has too few.
  bool is_spare() const { return options_.worker_id >= num_replicas(); }
  uint64_t num_steps() const;  // the last step, as of the registration; 0: the job has none
  // Returns whether the server has said that the job is done, in the epoch of the last registration
  // or a later one.
  bool training_done() const;
  // Remembers `error` as the stop_reason if it is the STOPPED or EVICTED error of any call.
  void NoteStop(const absl::Status& error);
  // Returns the STOPPED or EVICTED error of a Heartbeat of these epochs or of NoteStop, or OK.
  absl::Status stop_reason() const;
  std::string silent_peer() const;  // the ps task that does not answer; empty: there is none
  // Returns silent_peer() if there is one, else what the step waits for, as of the last heartbeat.
  std::string waiting_for() const;
  double learning_rate() const;  // as of the last heartbeat

  // Makes Connect, Register, Declare, Commit, Retry and CheckContact return CANCELLED. Calls that
  // are blocked do so after the attempt or pause under way.
  void Stop() { stopped_.store(true); }
  // As Stop, and ends attempts under way, also those of Pull, Heartbeat and pushes, whose answers
  // are lost. Never blocks.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status PullShard(int shard, absl::Duration pull_begun, uint64_t min_version, bool exact,
                         absl::Duration poll_timeout, absl::Span<float> flat,
                         const ElementsReady& on_elements, uint64_t* version);
  // Calls to one shard that failed one after the other.
  struct Failures {
    absl::Duration first = absl::InfiniteDuration();  // end of the first one; infinite: none failed
    absl::Duration last = -absl::InfiniteDuration();  // end of the last one
    absl::Status error;                               // of the last one
  };
  void AddClient(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `error` unless it is WRONG_RUN before the first registration. Then asks for the run.
  // NOT_READY: run_id() has changed, repeat the call. JOB_CHANGED: job() is of other settings.
  absl::Status FollowRun(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string PeerName(int shard) const;
  // Returns the announced address of a task other than 0. FAILED_PRECONDITION: see Connect.
  absl::StatusOr<std::string> AnnouncedAddress(int shard,
                                               const std::string& address_of_task_0) const;
  // Returns the first shard whose last call failed before `now`, and its failures; or null.
  const Failures* FindFailures(absl::Duration now, int* shard) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the result of a call that has just ended. `begun`: when it began; if several shards are
  // called in turn, when the call to the first of them began.
  void Note(absl::Duration begun, const absl::Status& status, Failures* failures) const;
  // Tells the user that this session has waited for a shard for `waited`: reports its name, and
  // the reason that it gave, if any, at most once a second, and logs why.
  void NoteWait(int shard, const absl::Status& why, absl::Duration waited)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps what the server said in `epoch`: why training was stopped, or, if that is OK, that the
  // job is done. Ignored if the clone has registered in a later epoch since.
  void NoteEnd(uint64_t epoch, absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a sample to server_clock: the request was sent at `sent`, the answer has just arrived.
  // server_nanoseconds = 0 means that the answer does not contain the clock.
  void NoteServerClock(absl::Duration sent, int64_t server_nanoseconds);

  const Options options_;
  const CloneIdentity identity_;
  ps::Arithmetic arithmetic_;
  const ClientFactory factory_;
  Clock* const clock_;
  const WaitReporter on_wait_;
  std::atomic<bool> stopped_{false};

  // Set by Connect, unchanged afterwards. Connect extends clients_ under the mutex, because Cancel
  // reads it meanwhile.
  std::vector<std::unique_ptr<PsClient>> clients_;
  ps::JobReply job_;

  mutable absl::Mutex mutex_;
  std::string run_id_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_to_register_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const ExactElements> exact_ ABSL_GUARDED_BY(mutex_);  // null before Register
  std::vector<ps::ReplicaGrant> grants_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = kDefaultLease;
  uint64_t open_step_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t num_replicas_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  bool training_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  uint64_t end_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last end that NoteEnd has kept
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  double learning_rate_ ABSL_GUARDED_BY(mutex_) = 0.0;
  // Kept apart, because a server that answers heartbeats may still fail to send its weights.
  Failures heartbeats_ ABSL_GUARDED_BY(mutex_);
  std::vector<Failures> pulls_ ABSL_GUARDED_BY(mutex_);  // by shard
  absl::Duration last_wait_report_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  std::string last_reason_ ABSL_GUARDED_BY(mutex_);  // the last one that was logged, and when
  absl::Duration last_reason_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_PS_SESSION_H_
