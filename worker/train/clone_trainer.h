// The training loop of one clone: pull, compute each owned slot, push, commit; again.
#ifndef PUSHPULL_WORKER_TRAIN_CLONE_TRAINER_H_
#define PUSHPULL_WORKER_TRAIN_CLONE_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/clock.h"
#include "common/monotonic_wait.h"
#include "common/trace/trace_writer.h"
#include "common/variable_layout.h"
#include "worker/train/gpu_probe.h"
#include "worker/train/gradient_pusher.h"
#include "worker/train/gradient_source.h"
#include "worker/train/phase_clock.h"
#include "worker/train/ps_session.h"

namespace pushpull {

// What a clone tells its supervisor after each contribution, and while it waits.
struct CloneReport {
  uint64_t step = 0;
  uint64_t num_steps = 0;
  double loss = 0.0;
  double accuracy = -1.0;  // negative: not a classifier
  double learning_rate = 0.0;
  double images_per_second = 0.0;
  uint64_t staleness = 0;
  std::string waiting_for;  // not empty: nothing moves, and why
};

// What looks at a clone from outside; each may be null.
struct CloneInstruments {
  GpuProbe* gpu = nullptr;
  TraceRow* phases = nullptr;   // of the training thread
  TraceRow* sending = nullptr;  // of the contributions under way
};

struct CloneTrainerOptions {
  ps::GradientEncoding gradient_encoding = ps::FLOAT32;
  CloneInstruments instruments = {};
};

// Run is called once, by one thread; Stop from any.
class CloneTrainer {
 public:
  using ReportFn = std::function<void(const CloneReport&)>;

  // Everything must outlive the trainer; the session is connected but not registered.
  CloneTrainer(PsSession* session, GradientSource* source, const VariableLayout* layout,
               Clock* clock, ReportFn report, const CloneTrainerOptions& options = {});
  ~CloneTrainer();

  // Trains until the job is done (OK), is stopped by a failure anywhere (CANCELLED with STOPPED,
  // naming it), an operator evicts the clone (PERMISSION_DENIED with EVICTED), a server stays
  // silent past its deadline (DEADLINE_EXCEEDED), or Stop (CANCELLED, after the open contribution).
  // OK also when the server has gone after it applied the last step.
  absl::Status Run();
  void Stop();

 private:
  absl::Status AllocateVectors();
  absl::Span<const float> weights() const;
  absl::Status Register();
  absl::Status RunSyncStep();
  absl::Status RunAsyncStep();
  // Async: the slots as last heard; an evicted clone's may have come.
  void TakeAsyncSlots();
  // Computes, pushes and commits one contribution. `meanwhile` is called once all of it is with the
  // sender, before the server's answer.
  absl::Status Contribute(const ps::SlotGrant& grant, const ps::PushKey& key, uint64_t position,
                          absl::FunctionRef<void()> meanwhile);
  // The answer, after as many attempts as it takes.
  absl::StatusOr<ps::PushReply> AwaitPush(const ps::CommitInfo& info);
  absl::StatusOr<ps::CommitReply> Commit(const ps::PushKey& key, const ps::CommitInfo& info);
  // `refusal`: of the server, if it was that which found something.
  absl::Status CommitVoid(const ps::PushKey& key, bool loss_is_finite, absl::string_view refusal);
  // What is to be computed next.
  struct Upcoming {
    uint64_t position = 0;
    uint32_t slot = 0;
  };
  struct PullPlan {
    uint64_t version = 0;
    bool exact = true;  // false: at least that
    absl::Duration poll;
    Phase until = Phase::kPull;    // before the first bytes arrive
    std::optional<Upcoming> next;  // is probably computed at these weights
  };
  // Brings weights_ to a version. DEADLINE_EXCEEDED: not there yet.
  absl::Status PullInto(const PullPlan& plan);
  // Sync: the version that `step` makes.
  absl::Status PullMade(uint64_t step, absl::Duration poll);
  // Sync: of the step after `version`; none if that is the last.
  std::optional<Upcoming> NextAfter(uint64_t version) const;
  // Repeats what the coordinator refuses because it has not yet heard of the step before.
  absl::Status AwaitOpenStep(absl::FunctionRef<absl::Status()> call);
  // What to do after an error of a step: OK to go on, else the end of Run.
  absl::Status Recover(const absl::Status& error);
  absl::Status Train();
  // The last step has been applied, as far as is known.
  bool AllApplied() const;
  // After the last step: until the server says that it is saved, or has gone (true), or has rolled
  // steps back, so that there is more to do (false).
  absl::StatusOr<bool> WaitForPublication();
  absl::Status Beat();
  void StopHeartbeat();
  void RunHeartbeat();
  void NoteImages(uint64_t samples);
  void Report(const GradientResult& result, uint64_t step, uint64_t staleness);
  void ReportWaiting();

  PsSession* const session_;
  GradientSource* const source_;
  const VariableLayout* const layout_;
  Clock* const clock_;
  const ReportFn report_;
  const CloneInstruments instruments_;
  const bool sync_;
  const uint64_t num_steps_;

  // Of the source, each of all elements.
  std::shared_ptr<float> weights_;
  std::shared_ptr<float> incoming_;  // a pull in progress; swapped in when whole
  std::shared_ptr<float> gradient_;  // the transport may hold on to a cancelled push for a moment
  std::unique_ptr<GradientPusher> pusher_;
  uint64_t held_version_ = 0;
  bool holds_weights_ = false;
  std::vector<ps::SlotGrant> contributed_;  // sync: to the step after held_version_
  // Async, per owned slot.
  struct AsyncSlot {
    ps::SlotGrant grant;
    uint64_t sequence = 0;  // pushes so far under the grant, refused and void ones too
    uint64_t position = 0;  // of the next batch
  };
  std::vector<AsyncSlot> async_slots_;

  PhaseClock phase_;
  std::atomic<bool> stop_{false};
  std::atomic<double> images_per_second_{0.0};
  std::atomic<uint64_t> contributions_{0};
  std::atomic<uint64_t> images_{0};
  absl::Duration rate_start_;
  uint64_t rate_samples_ = 0;
  CloneReport last_report_;

  StopFlag heartbeat_stop_;
  std::thread heartbeat_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_CLONE_TRAINER_H_
