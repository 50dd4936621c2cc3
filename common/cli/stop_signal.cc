#include "common/cli/stop_signal.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "glog/logging.h"

#include "common/cli/exit_codes.h"

namespace pushpull {
namespace {

// The state of the signal handler, which can only use lock-free globals.
std::atomic<int> signals_seen{0};
std::atomic<int64_t> first_unforwarded_ns{0};  // by SteadyNanoseconds; 0: none has come
std::atomic<int64_t> repetitions_ns{0};
std::atomic<pid_t> forwarding_process{0};
std::atomic<int> pipe_write_end{-1};

// Unlike the clocks of the libraries, this one may be read in a signal handler.
int64_t SteadyNanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Says whether a signal that nobody forwards asks for the end at once.
bool IsSecond() {
  const int64_t now = SteadyNanoseconds();
  int64_t first = 0;
  if (first_unforwarded_ns.compare_exchange_strong(first, now)) return false;
  return now - first >= repetitions_ns.load();
}

extern "C" void HandleStopSignal(int signal_number, siginfo_t* info, void* /*context*/) {
  // The process number is 0 if the sender is outside of this process's container.
  const bool is_forwarded =
      info->si_code == SI_USER && info->si_pid != 0 && info->si_pid == forwarding_process.load();
  if (!is_forwarded && IsSecond()) ::_exit(kExitStopped);
  if (signals_seen.fetch_add(1) > 0) return;
  const char byte = static_cast<char>(signal_number);
  // The pipe cannot be full: this is the only byte that the handler ever writes.
  if (::write(pipe_write_end.load(), &byte, 1) != 1) ::_exit(kExitStopped);
}

}  // namespace

struct StopSignal::State {
  int pipe[2];
  std::function<void(int)> on_stop;
  std::thread thread;
  struct sigaction old_term, old_int, old_hup;
};

StopSignal::StopSignal(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<StopSignal> StopSignal::Install(std::function<void(int)> on_stop,
                                                const StopSignalOptions& options) {
  auto state = std::make_unique<State>();
  PCHECK(::pipe2(state->pipe, O_CLOEXEC) == 0);
  CHECK_EQ(pipe_write_end.exchange(state->pipe[1]), -1) << "StopSignal is installed twice";
  signals_seen = 0;
  first_unforwarded_ns = 0;
  repetitions_ns = absl::ToInt64Nanoseconds(options.repetitions);
  forwarding_process = options.forwarder;
  state->on_stop = std::move(on_stop);
  State* raw = state.get();
  state->thread = std::thread([raw] {
    char byte = 0;
    if (::read(raw->pipe[0], &byte, 1) == 1 && byte != 0) raw->on_stop(byte);
  });
  struct sigaction action = {};
  action.sa_sigaction = HandleStopSignal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  ::sigaction(SIGTERM, &action, &state->old_term);
  ::sigaction(SIGINT, &action, &state->old_int);
  // Shells ignore SIGINT in background jobs, so that Ctrl-C reaches only the foreground job.
  if (state->old_int.sa_handler == SIG_IGN) ::sigaction(SIGINT, &state->old_int, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &state->old_hup);
  if (options.closed_pipe == StopSignalOptions::ClosedPipe::kFail) {
    ::sigaction(SIGPIPE, &ignore, nullptr);
  }
  return std::unique_ptr<StopSignal>(new StopSignal(std::move(state)));
}

StopSignal::~StopSignal() {
  ::sigaction(SIGTERM, &state_->old_term, nullptr);
  ::sigaction(SIGINT, &state_->old_int, nullptr);
  ::sigaction(SIGHUP, &state_->old_hup, nullptr);
  const char nothing = 0;
  PCHECK(::write(state_->pipe[1], &nothing, 1) == 1);
  state_->thread.join();
  pipe_write_end = -1;
  ::close(state_->pipe[0]);
  ::close(state_->pipe[1]);
}

bool StopSignal::requested() const { return signals_seen.load() > 0; }

}  // namespace pushpull
