// Handles SIGTERM and SIGINT. The first signal asks the process to end in order; the second ends it
// at once with exit code 143.
#ifndef PUSHPULL_COMMON_CLI_STOP_SIGNAL_H_
#define PUSHPULL_COMMON_CLI_STOP_SIGNAL_H_

#include <functional>
#include <memory>

namespace pushpull {

// At most one object may exist in a process. A child process that calls exec starts without the
// handlers of SIGTERM and SIGINT, but with SIGHUP ignored.
class StopSignal {
 public:
  // Installs the handlers and ignores SIGHUP from now on. The first signal calls `on_stop` once,
  // with the signal's number, on a separate thread, so it may lock, log and block. If SIGINT was
  // ignored before, it stays ignored.
  static std::unique_ptr<StopSignal> Install(std::function<void(int)> on_stop);

  // Restores the previous handlers and blocks until a running on_stop has returned.
  ~StopSignal();

  // Returns whether a signal has arrived. Thread-safe, never blocks.
  bool requested() const;

  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

 private:
  struct State;
  explicit StopSignal(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_STOP_SIGNAL_H_
