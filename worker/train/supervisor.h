// Starts one process per clone, restarts those that die, forwards signals to them, and collects
// their reports.
//
// The kernel kills the clones (SIGKILL) when the supervisor's process ends for any reason, so that
// no clone outlives it, not even a suspended one. Clones get no time to end by themselves in this
// case: a suspended clone could not use it, and a killed clone loses nothing, because what it has
// not contributed is computed again.
#ifndef PUSHPULL_WORKER_TRAIN_SUPERVISOR_H_
#define PUSHPULL_WORKER_TRAIN_SUPERVISOR_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "worker/client/clone_identity.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {

// The state of one clone.
struct CloneState {
  enum class Phase {
    kStarting,    // the process runs and has not reported yet
    kRunning,     // the process has reported
    kRestarting,  // the process died and will be started again
    kDone,        // the process ended with exit code 0
    kLeft         // the process ended with one of leaving_exit_codes
  };
  Phase phase = Phase::kStarting;
  CloneReport report;      // the last one received
  bool reported = false;   // whether `report` has been received, from any process of the clone
  int deaths = 0;          // processes that did not end with exit code 0
  std::string last_death;  // "killed by signal 9", "exit code 1", "could not be started: ..."
};

struct SupervisorOptions {
  int num_clones = 1;
  // Returns the argv of the next process of a clone, whose earlier ones have left `state`.
  // Descriptor kSupervisorFd of that process is a socket, from which the clone reads its identity
  // (clone_identity.h) and to which it writes its reports (clone_report_codec.h).
  std::function<std::vector<std::string>(int clone, const CloneState& state)> command;
  // The file that the processes execute; empty: the first word of their argv. "/proc/self/exe" is
  // the program that runs the supervisor, also after another version has taken its path.
  std::string program;
  // Exit codes that a restart cannot cure, such as for a bad config or a lost peer. All clones are
  // stopped, and Run returns the code.
  std::vector<int> permanent_exit_codes;
  // Exit codes that concern all clones, although new processes of them may succeed: the server has
  // other settings. All clones are stopped, and Run returns the code. It may be called again.
  std::vector<int> renewing_exit_codes;
  // Exit codes of a clone that is out of the job for good (evicted) while the others go on.
  std::vector<int> leaving_exit_codes;
  int exit_code_internal = 70;  // result of Run if a clone keeps dying
  // A clone that dies is restarted at once if it has trained for at least `settled`; it trains from
  // its first report with a step. Otherwise it is restarted after a pause, which grows from
  // initial_backoff to max_backoff. The supervisor gives up at max_rapid_deaths such deaths in a
  // row. A process that cannot be started, because descriptors are exhausted for instance, counts
  // as one that died.
  absl::Duration settled = absl::Seconds(2);
  int max_rapid_deaths = 20;
  absl::Duration initial_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
  // How long clones may take to end after SIGTERM before they are killed.
  absl::Duration drain_timeout = absl::Seconds(30);
  absl::Duration poll_period = absl::Milliseconds(20);  // of exits and reports
};

// Thread rule: Run is called by one thread.
class Supervisor {
 public:
  static constexpr int kSupervisorFd = 3;
  // Called by Run, on its thread, every poll_period, and once after it has told clones to end.
  using ProgressFn = std::function<void(const std::vector<CloneState>&)>;

  // `stop_signal` is 0, or the number of a signal to forward to the clones; a signal handler sets
  // it. `clock` and `stop_signal` must outlive the object.
  Supervisor(SupervisorOptions options, Clock* clock, const std::atomic<int>* stop_signal,
             ProgressFn on_progress);
  ~Supervisor();  // kills and reaps the clones that still run

  // Starts the clones and blocks until the worker is done. Returns an exit code:
  // 0: every clone has ended with 0 or has left, and at least one has ended with 0.
  // A permanent or renewing exit code: a clone ended with it.
  // A leaving exit code: all clones have left.
  // After a clone has died max_rapid_deaths times in a row: the exit code of its last process if
  // that is at least 128, which means that a restart may help; otherwise exit_code_internal.
  // 128 + SIGTERM: stop_signal was set.
  // Before Run returns while clones are running, it tells them to end and waits for them. Those
  // that still run after drain_timeout are killed by the destructor or the next call of Run.
  //
  // After a renewing exit code Run may be called again. It starts all clones but those that have
  // left, in the same sessions and with what the earlier processes have reported.
  int Run();
  const std::vector<CloneState>& states() const { return states_; }

 private:
  struct Process {
    explicit Process(Backoff delays) : backoff(delays) {}
    pid_t pid = -1;
    CloneIdentity identity;
    int socket = -1;     // the supervisor's end of the clone's kSupervisorFd
    std::string unread;  // an incomplete line of a report
    std::optional<absl::Duration> training_since;  // first report with a step
    absl::Duration restart_at;
    int rapid_deaths = 0;
    int leaving_code = 0;
    Backoff backoff;
  };

  // Starts a process of the clone. RESOURCE_EXHAUSTED and others: no descriptor, process or memory
  // is left for it.
  absl::Status Start(int clone);
  // As Start. A failure is treated as a death of the clone; see PlanRestart.
  void StartOrTryLater(int clone, int* decided);
  void ReadReports(int clone);
  // Handles the processes that have ended. Sets *decided if one of them decides the result of Run.
  void Reap(int* decided);
  // Returns the result of Run if all clones are done or have left, else nullopt.
  std::optional<int> CodeOfTheEnd() const;
  // Sets *decided if this exit decides the result of Run.
  void HandleExit(int clone, int wait_status, int* decided);
  // Sets the time at which a clone that has died or could not be started is started again. Gives
  // it up after max_rapid_deaths, and then sets *decided. `what` says in the log what has happened.
  void PlanRestart(int clone, absl::string_view what, int code_of_giving_up, int* decided);
  // The pause before a clone that has died is restarted; nullopt if the clone is given up.
  std::optional<absl::Duration> RestartDelay(int clone);
  void SignalAll(int signal);
  // Kills and reaps the clones that still run.
  void KillAll();
  bool AllGone() const;
  // Sends `signal` to all clones, waits until they have ended, at most drain_timeout, and shows
  // their last reports. The destructor kills those that have not ended.
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
