// The training loop of one clone. Each iteration pulls the variables and, for every replica that
// the clone holds a grant for, computes a gradient, pushes it and commits it.
#ifndef PUSHPULL_WORKER_CLIENT_CLONE_TRAINER_H_
#define PUSHPULL_WORKER_CLIENT_CLONE_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/base/rate_meter.h"
#include "common/model/variable_layout.h"
#include "common/trace/trace_writer.h"
#include "common/wire/gradient_codec.h"
#include "worker/client/gradient_pusher.h"
#include "worker/client/gradient_source.h"
#include "worker/client/phase_clock.h"
#include "worker/client/ps_session.h"

namespace pushpull {

// What a clone of a synchronous job waits for while it has no replica. Python's supervisor knows
// the text, too (_reports.py).
inline constexpr char kWaitOfSpare[] = "a replica (this clone is a spare)";

// The report of a clone to its supervisor, after each contribution and while it waits.
struct CloneReport {
  uint64_t step = 0;       // 0: no contribution yet
  uint64_t num_steps = 0;  // 0: the job has no last step
  double loss = 0.0;
  double accuracy = -1.0;  // negative: the network is no classifier
  double learning_rate = 0.0;
  double images_per_second = 0.0;
  uint64_t images = 0;      // that this process has contributed so far
  uint64_t staleness = 0;   // versions
  std::string waiting_for;  // not empty: the clone waits for this
  std::string gpu;          // UUID of the GPU that the clone computes on; empty on the CPU
};

// The source of a clone's GPU figures, and the rows of its trace. Each may be null.
struct CloneInstruments {
  // Returns the figures of the GPU that the clone computes on, or nullopt if it does not answer.
  // Called from the heartbeat thread and the training thread.
  std::function<std::optional<ps::GpuFigures>()> gpu = nullptr;
  TraceRow* phases = nullptr;   // gets the phases of the training thread
  TraceRow* sending = nullptr;  // gets a span per contribution that is being sent
};

struct CloneTrainerOptions {
  const GradientCodec* gradient_codec = &Float32Codec();
  CloneInstruments instruments = {};
  // May be null. Called from the thread of Run each time the server has registered the clone.
  std::function<void()> on_registered = nullptr;
  // Also pulls the weights of the last step before Run returns. The source gets them by
  // GradientSource::NoteWeights. A server whose job is done waits for that as long as its lease,
  // and ps tasks in other processes half as long. If the clone takes longer, a warning says so.
  bool pull_last_weights = false;
  // An error of the source with the code ABORTED means that this clone does not come back: the
  // server is told that it leaves, as after Stop.
  bool leaves_when_aborted = false;
};

// Thread rule: Run is called once, by one thread; Stop may be called from any thread.
class CloneTrainer {
 public:
  using ReportFn = std::function<void(const CloneReport&)>;

  // The objects behind the pointers must outlive the trainer. `session` must be connected; Run
  // registers it. `report` is called from the thread of Run.
  CloneTrainer(PsSession* session, GradientSource* source, const VariableLayout* layout,
               Clock* clock, ReportFn report, const CloneTrainerOptions& options = {});
  ~CloneTrainer();

  // Trains; blocks until training ends.
  // OK: the job is done, which the server has confirmed.
  // CANCELLED with ErrorDetail STOPPED: a failure elsewhere has stopped the job; the message names
  //     it.
  // CANCELLED without it: Stop was called.
  // PERMISSION_DENIED with ErrorDetail EVICTED: an administrator has evicted the clone.
  // DEADLINE_EXCEEDED: a server was silent for the peer deadline, perhaps after it applied the last
  //     step, so that nobody knows whether the last checkpoint is written.
  // Errors of the gradient source, and errors of the server that a repetition cannot cure.
  absl::Status Run();
  // Makes Run return CANCELLED. A gradient that is being computed is finished first; whether its
  // push is committed is not defined.
  void Stop();

 private:
  absl::Status AllocateVectors();
  absl::Span<const float> weights() const;
  absl::Status Register();
  absl::Status RunSyncStep();
  absl::Status RunAsyncStep();
  // Async: takes over the session's grants. They may include those of an evicted clone.
  void TakeAsyncReplicas();
  // Computes, pushes and commits one contribution. Calls `meanwhile` when the whole gradient has
  // been handed to the sending thread and the server's answer is still outstanding.
  absl::Status Contribute(const ps::ReplicaGrant& grant, const ps::PushKey& key, uint64_t position,
                          absl::FunctionRef<void()> meanwhile);
  // Calls `load`, which waits for data, in phase kInput. Enters kCompute if it returns OK.
  absl::Status AwaitInput(absl::FunctionRef<absl::Status()> load);
  // Waits for the answer to the push, and sends the contribution again after transient errors.
  absl::StatusOr<ps::PushReply> AwaitPush(const ps::CommitInfo& info);
  // Sets commits_sent_.
  absl::StatusOr<ps::CommitReply> Commit(const ps::PushKey& key, const ps::CommitInfo& info);
  // Commits the contribution as void, because it has non-finite values. `refusal` is the server's
  // message if the server found them.
  absl::Status CommitVoid(const ps::PushKey& key, bool loss_is_finite, absl::string_view refusal);
  // The arguments of a coming GradientSource::Compute.
  struct Upcoming {
    uint64_t position = 0;
    uint32_t replica = 0;
    BatchPart part = {};  // sync
  };
  struct PullPlan {
    uint64_t version = 0;
    bool exact = true;               // false: this version or a later one
    absl::Duration poll;             // how long the server may wait for the version
    Phase until = Phase::kPull;      // phase of the clock before the first bytes arrive
    std::optional<Upcoming> next{};  // the contribution that these weights are probably for
  };
  // Pulls a version into weights_. DEADLINE_EXCEEDED: the server does not have it yet.
  absl::Status PullInto(const PullPlan& plan);
  // Sync: pulls the version that `step` creates.
  absl::Status PullMade(uint64_t step, absl::Duration poll);
  // Sync: the clone's first contribution to the step after `version`; nullopt if `version` is the
  // last one or the clone holds no grant for that step.
  std::optional<Upcoming> NextAfter(uint64_t version) const;
  // Sync: asks for the grants of `step`, which differ from those before it, until the coordinator
  // has opened the step. Gives up after about a second; a push under an old grant is refused.
  absl::Status RenewGrants(uint64_t step);
  // Repeats `call` while the coordinator refuses it with STEP_TOO_NEW, because it has not yet
  // learned that the previous step was applied. Gives up after about a second.
  absl::Status AwaitOpenStep(absl::FunctionRef<absl::Status()> call);
  // Handles an error of a step. OK: training can go on. Else: the result of Run.
  absl::Status Recover(const absl::Status& error);
  absl::Status Train();
  // Pulls the newest weights that are known to be applied, if the program wants them and the clone
  // does not have them. Makes one attempt. Later heartbeats say that the server need not wait.
  void PullLastWeights();
  // Returns whether training ends with this version.
  bool EndsAt(uint64_t version) const;
  // Returns whether the last step is known to be applied.
  bool AllApplied() const;
  // Waits after the last step until the server has saved the result, and reports that it waits.
  // Returns true then, or false if the server restarted from an earlier version, so that there is
  // more to train. A server that ends well tells its clones first (ServerCore::AnnounceEnd), so
  // DEADLINE_EXCEEDED means that it was lost, or that this process was paused for longer than the
  // lease.
  absl::StatusOr<bool> WaitForPublication();
  // Returns whether the clone has heard that training has ended, or why it was stopped, and wants
  // nothing more from the server.
  bool KnowsEnd() const;
  absl::Status Beat();
  void StopHeartbeat();
  // Stops the heartbeats. If Run ends with `result` because training has ended or was stopped, the
  // server is told that the clone knows; after Stop, or as leaves_when_aborted says, it is told
  // that the clone leaves. Repeats that for a second if it may be lost.
  void EndHeartbeats(const absl::Status& result);
  // Makes one attempt. OK if there is nothing to say, or if the server knows it already.
  absl::Status SayThatItEnds(bool leaves);
  void RunHeartbeat();
  void StartRate();  // begins the first window of rate_
  void NoteImages(uint64_t samples);
  double ImagesPerSecond() const;
  void Report(const GradientResult& result, uint64_t step, uint64_t staleness);
  void ReportWaiting();

  PsSession* const session_;
  GradientSource* const source_;
  const VariableLayout* const layout_;
  Clock* const clock_;
  const ReportFn report_;
  const CloneTrainerOptions options_;
  const bool sync_;

  // Vectors of layout_->total_elements() from GradientSource::AllocateVector.
  std::shared_ptr<float> weights_;
  std::shared_ptr<float> incoming_;  // pulls write here; swapped with weights_ when complete
  std::shared_ptr<float> gradient_;  // shared: the transport may keep a cancelled push for a moment
  std::unique_ptr<GradientPusher> pusher_;
  uint64_t held_version_ = 0;   // of weights_
  bool holds_weights_ = false;  // false: weights_ must be pulled before the next step
  std::vector<ps::ReplicaGrant>
      contributed_;               // sync: grants already used for step held_version_ + 1
  int commits_sent_ = 0;          // how often the last commit without a push was sent
  uint64_t new_grants_step_ = 0;  // sync: the grants change with this step; 0: not known to
  // Async: the state of one replica that the clone holds a grant for.
  struct AsyncReplica {
    ps::ReplicaGrant grant;
    uint64_t sequence = 0;  // pushes so far under the grant, including refused and void ones
    uint64_t position = 0;  // of the replica's next batch
  };
  std::vector<AsyncReplica> async_replicas_;

  PhaseClock phase_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> wants_last_weights_;
  std::atomic<bool> has_told_end_{false};  // the server has heard that this clone knows of the end
  std::atomic<uint64_t> contributions_{0};
  std::atomic<uint64_t> images_{0};
  mutable absl::Mutex rate_mutex_;
  // Measures contributions and their images.
  RateMeter rate_ ABSL_GUARDED_BY(rate_mutex_) = RateMeter(absl::Seconds(3));
  CloneReport last_report_;

  StopFlag heartbeat_stop_;
  std::thread heartbeat_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_CLONE_TRAINER_H_
