// DeclarationHandler answers the calls to task 0 while the variables of an external model are not
// declared yet. DeclarationPhase uses it.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_HANDLER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_HANDLER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "ps_server/core/declaration.h"
#include "ps_server/runtime/not_ready_handler.h"

namespace pushpull {

struct DeclaredVariables {
  VariableLayout layout;
  std::vector<float> values;  // the layout's flat vector
};

// Thread-safe. Serves GetJob, GetStatus, DeclareVariables and Drain; every other call gets
// NOT_READY.
class DeclarationHandler final : public NotReadyHandler {
 public:
  // job: the reply to GetJob, except for addresses and server_nanoseconds. `clock` must outlive the
  // handler.
  DeclarationHandler(ps::JobReply job, DeclarationOptions options, Clock* clock);

  // Sets the addresses of all tasks, which GetJob returns. GetJob gets NOT_READY before this call.
  void SetAddresses(std::vector<std::string> addresses);

  enum class State {
    kWaiting,   // values are missing
    kComplete,  // all values are there
    kDrained,   // an administrator has told the server to end
  };
  // Blocks until the state is another than kWaiting, for at most `patience`.
  State Await(absl::Duration patience);
  // Returns what has been declared, and keeps nothing of the values. To be called once, after
  // kComplete.
  DeclaredVariables Take();
  // Returns whether an administrator has told the server to end.
  bool drained();
  // To be called after kComplete. `written`: OK once the values are on the disk, else what clones
  // are told instead; the waiting and all later calls of DeclareVariables are answered with it.
  // Returns whether an administrator has told the server to end; after that, Drain gets NOT_READY.
  bool Finish(const absl::Status& written);

  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override;
  void GetStatus(const ps::StatusRequest& request, Done<ps::StatusReply> done) override;
  void DeclareVariables(const ps::DeclareRequest& request, Done<ps::DeclareReply> done) override;
  void Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) override;

 private:
  // A call that waits until the values are on the disk.
  struct Waiting {
    ps::DeclareReply reply;
    Done<ps::DeclareReply> done;
  };

  const ps::JobReply job_;
  Clock* const clock_;
  const absl::Duration started_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // notified when the state changes
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  Declaration declaration_ ABSL_GUARDED_BY(mutex_);
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> written_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_HANDLER_H_
