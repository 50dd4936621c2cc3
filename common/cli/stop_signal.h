// Handles SIGTERM and SIGINT. The first signal asks the process to end in order; the second ends it
// at once with exit code 143. Signals that another process forwards do not count as the second, nor
// do repetitions within a second. A terminal or a pipe that is closed does not end the process.
#ifndef PUSHPULL_COMMON_CLI_STOP_SIGNAL_H_
#define PUSHPULL_COMMON_CLI_STOP_SIGNAL_H_

#include <sys/types.h>

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace pushpull {

struct StopSignalOptions {
  // A process, such as the parent, that forwards each signal to this one; 0: there is none. A
  // signal to a whole process group, such as Ctrl-C, or to all processes of a service reaches this
  // process twice, from its sender and from the forwarder.
  pid_t forwarder = 0;
  // Signals that come sooner after the first one belong to it. `timeout` and some schedulers signal
  // the process and then its process group.
  absl::Duration repetitions = absl::Seconds(1);
  // What a write does to a pipe that nobody reads any more. kFail: it fails with EPIPE, so that a
  // Ctrl-C that ends `tee` first does not keep `server | tee log` from its orderly end.
  // kEndProcess: SIGPIPE ends the process, so that `| head` ends it.
  enum class ClosedPipe { kFail, kEndProcess };
  ClosedPipe closed_pipe = ClosedPipe::kFail;
};

// At most one object may exist in a process. A child process that calls exec starts without the
// handlers of SIGTERM and SIGINT, but with SIGHUP and SIGPIPE ignored.
class StopSignal {
 public:
  // Installs the handlers and ignores SIGHUP from now on. The first signal calls `on_stop` once,
  // with the signal's number, on a separate thread, so it may lock, log and block. If SIGINT was
  // ignored before, it stays ignored.
  static std::unique_ptr<StopSignal> Install(std::function<void(int)> on_stop,
                                             const StopSignalOptions& options = {});

  // Restores the previous handlers and blocks until a running on_stop has returned. SIGPIPE stays
  // ignored, because the last message of the process is still to be written.
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
