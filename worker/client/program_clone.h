// One clone of a training job in a program that computes the gradients itself: the session with the
// server, the trainer on a thread of its own, and the source through which the two meet.
// pushpull_client.h is the interface for programs; this class is what it stands on.
#ifndef PUSHPULL_WORKER_CLIENT_PROGRAM_CLONE_H_
#define PUSHPULL_WORKER_CLIENT_PROGRAM_CLONE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/base/thread_pool.h"
#include "common/model/variable_layout.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/transport_security.h"
#include "worker/client/clone_trainer.h"
#include "worker/client/local_steps_source.h"
#include "worker/client/program_gradient_source.h"
#include "worker/client/ps_session.h"

namespace pushpull {

struct ProgramCloneOptions {
  std::vector<std::string> ps;      // as in PsSession::Connect
  PsSession::Options session = {};  // an empty peer_name is replaced
  const GradientCodec* gradient_codec = &Float32Codec();
  bool shared_memory = true;
  TransportSecurity security = {};
};

// Thread rule: one thread makes all calls, except that Stop and progress may be called from any
// thread. Call order: Connect until it succeeds, Start, then the functions of source(). Calls in
// another order return FAILED_PRECONDITION.
class ProgramClone {
 public:
  explicit ProgramClone(ProgramCloneOptions options);
  // Calls Stop, and blocks until the trainer's thread has ended, a few seconds at most: calls that
  // the server has not answered after two seconds are cancelled.
  ~ProgramClone();
  ProgramClone(const ProgramClone&) = delete;
  ProgramClone& operator=(const ProgramClone&) = delete;

  // Checks the options, and fetches the job. Blocks, and fails, as PsSession::Connect does.
  // INVALID_ARGUMENT: an option is wrong. FAILED_PRECONDITION: plaintext would leave this machine.
  // RESOURCE_EXHAUSTED: the process can open too few more files (ulimit -n).
  absl::Status Connect();
  // Null before Connect has succeeded. The job as it was then.
  const ps::JobReply* job() const { return connected_ ? &session_->job() : nullptr; }

  // Declares the variables if the job awaits them, starts the trainer, and blocks until the clone
  // is registered. values[i]: as in DeclareVariables; `values` may be null if the job does not
  // await its variables. `arithmetic`: as in PsSession::set_arithmetic. Errors are those of
  // VariableLayout::Create, DeclareVariables and PsSession::Register.
  absl::Status Start(std::vector<VariableSpec> variables, const float* const* values,
                     uint64_t num_samples, ps::Arithmetic arithmetic);
  // Null before Start has got as far as the registration.
  ProgramGradientSource* source() const { return source_.get(); }
  const VariableLayout* layout() const { return layout_.has_value() ? &*layout_ : nullptr; }

  // Makes all functions and those of source() return CANCELLED. Connect and Start do so within a
  // second or two, even if the server does not answer; the others at once. Never blocks.
  void Stop();

  // The last report of the trainer, or what Connect or Start waits for.
  CloneReport progress() const;

 private:
  absl::Status CheckOptions() const;
  absl::Status CheckRunning() const;  // CANCELLED after Stop
  absl::Status Declare(const VariableLayout& layout, const float* const* values);
  // Returns the source for the trainer: source, or one that takes local steps with it.
  absl::StatusOr<GradientSource*> WithLocalSteps(GradientSource* source);
  void RunTrainer();
  void NoteReport(const CloneReport& report);
  void NoteWaiting(const std::string& waiting_for);

  const ProgramCloneOptions options_;
  SteadyClock clock_;

  // Set by Connect and Start, on the program's thread, with the mutex held because Stop reads them.
  std::unique_ptr<PsSession> session_;
  bool connected_ = false;
  std::optional<VariableLayout> layout_;
  std::unique_ptr<ProgramGradientSource> source_;
  // Local steps, if the job has them.
  std::optional<VariableLayout> job_layout_;  // as the server trains the variables
  std::unique_ptr<ThreadPool> update_threads_;
  std::unique_ptr<LocalStepsSource> local_steps_;
  std::unique_ptr<CloneTrainer> trainer_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // of the trainer
  CloneReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_PROGRAM_CLONE_H_
