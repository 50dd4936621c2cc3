// Starts one process per clone, restarts those that die, passes signals on, and knows where all of
// them are.
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
#include "worker/train/clone_trainer.h"

namespace pushpull {

struct SupervisorOptions {
  int num_clones = 1;
  // argv of clone k, which writes its reports (clone_report_codec.h) to descriptor kReportFd.
  std::function<std::vector<std::string>(int clone)> command;
  // Exit codes after which a restart cannot help (bad config, peer lost): all clones are stopped
  // and Run returns the code.
  std::vector<int> permanent_exit_codes;
  // Exit codes of a clone that is out of the job for good while the others go on: evicted.
  std::vector<int> leaving_exit_codes;
  int exit_code_internal = 70;  // of a clone that keeps dying
  int max_rapid_deaths = 20;    // deaths in a row, each within rapid_death of its start
  absl::Duration rapid_death = absl::Seconds(30);
  absl::Duration initial_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);  // from SIGTERM to SIGKILL of a clone
  absl::Duration poll_period = absl::Milliseconds(100);
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
  static constexpr int kReportFd = 3;
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
    int report_fd = -1;
    std::string unread;  // the beginning of a line
    absl::Duration started;
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
