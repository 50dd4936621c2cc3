// Starts one process per clone, restarts those that die, passes signals on, and knows where all of
// them are.
//
// The kernel kills the clones (SIGKILL) when the supervisor's process ends, however it ends: also a
// clone that is stopped or deep in a computation does not outlive it. There is no grace, because a
// stopped clone could not use it and a clone that is killed loses nothing: whatever it has not
// contributed is computed again.
#ifndef PUSHPULL_WORKER_TRAIN_SUPERVISOR_H_
#define PUSHPULL_WORKER_TRAIN_SUPERVISOR_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/backoff.h"
#include "common/clock.h"
#include "worker/train/clone_identity.h"
#include "worker/train/clone_trainer.h"

namespace pushpull {

struct SupervisorOptions {
  int num_clones = 1;
  // argv of clone k. Descriptor kSupervisorFd of the process is a socket, from which it reads who
  // it is (clone_identity.h) and to which it writes its reports (clone_report_codec.h).
  std::function<std::vector<std::string>(int clone)> command;
  // Exit codes after which a restart cannot help (bad config, peer lost): all clones are stopped
  // and Run returns the code.
  std::vector<int> permanent_exit_codes;
  // Exit codes of a clone that is out of the job for good while the others go on: evicted.
  std::vector<int> leaving_exit_codes;
  int exit_code_internal = 70;  // of a clone that keeps dying
  // A clone is started again at once if it has trained (its report has named a step) for settled
  // before it died. A clone that has not is started again after a pause, which grows from death to
  // death; max_rapid_deaths of these in a row end the supervisor.
  absl::Duration settled = absl::Seconds(2);
  int max_rapid_deaths = 20;
  absl::Duration initial_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);  // from SIGTERM to SIGKILL of a clone
  absl::Duration poll_period = absl::Milliseconds(20);
};

// What is known of one clone.
struct CloneState {
  enum class Phase { kStarting, kRunning, kRestarting, kDone, kLeft };
  Phase phase = Phase::kStarting;
  CloneReport report;  // the last one
  int deaths = 0;
  std::string last_death;  // "killed by signal 9", "exit code 1"
};

// Run is called once, by one thread.
class Supervisor {
 public:
  static constexpr int kSupervisorFd = 3;
  // Called every poll_period.
  using ProgressFn = std::function<void(const std::vector<CloneState>&)>;

  // stop_signal: the number of a signal to pass on, or 0; set from a signal handler.
  Supervisor(SupervisorOptions options, Clock* clock, const std::atomic<int>* stop_signal,
             ProgressFn on_progress);
  ~Supervisor();  // kills what still runs

  // Returns 0 when every clone has ended with 0 or left, and not all have left; the permanent exit
  // code of the first clone that had one; the leaving one when all have left; 128 + SIGTERM after a
  // stop signal, when all clones have ended.
  int Run();
  const std::vector<CloneState>& states() const { return states_; }

 private:
  struct Process {
    explicit Process(Backoff delays) : backoff(delays) {}
    pid_t pid = -1;
    CloneIdentity identity;
    int socket = -1;     // our end of kSupervisorFd
    std::string unread;  // the beginning of a line
    std::optional<absl::Duration> training_since;
    absl::Duration restart_at;
    int rapid_deaths = 0;
    int leaving_code = 0;
    Backoff backoff;
  };

  void Start(int clone);
  void ReadReports(int clone);
  // Takes note of processes that ended; returns the exit code of Run if that is decided.
  int Reap();
  // 0, or the exit code of the clones when all have left. Nothing while one has not ended.
  std::optional<int> CodeOfTheEnd() const;
  void HandleExit(int clone, int wait_status, int* decided);
  // The pause before a clone that has died is started again; nothing: it is given up.
  std::optional<absl::Duration> RestartDelay(int clone);
  void SignalAll(int signal);
  bool AllGone() const;
  // Sends SIGTERM (or the given signal) to all, waits for drain_timeout, then SIGKILL.
  void Drain(int signal);

  const SupervisorOptions options_;
  Clock* const clock_;
  const std::atomic<int>* const stop_signal_;
  const ProgressFn on_progress_;
  std::vector<CloneState> states_;
  std::vector<Process> processes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_SUPERVISOR_H_
