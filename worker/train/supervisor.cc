#include "worker/train/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "worker/train/clone_report_codec.h"

namespace pushpull {
namespace {

bool EndedWithOneOf(const std::vector<int>& codes, int wait_status) {
  return WIFEXITED(wait_status) &&
         std::count(codes.begin(), codes.end(), WEXITSTATUS(wait_status)) > 0;
}

std::string DescribeDeath(int wait_status) {
  if (WIFSIGNALED(wait_status)) return absl::StrCat("killed by signal ", WTERMSIG(wait_status));
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

// Runs in the child between fork and exec, so it may only make async-signal-safe calls.
[[noreturn]] void ExecClone(const char* program, char* const* argv, int socket, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (socket == Supervisor::kSupervisorFd) {
    fcntl(socket, F_SETFD, 0);
  } else {
    dup2(socket, Supervisor::kSupervisorFd);
  }
  execv(program, argv);
  constexpr char kMessage[] = "worker: a clone process could not be started (exec failed)\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(127);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, Clock* clock, const std::atomic<int>* stop_signal,
                       ProgressFn on_progress)
    : options_(std::move(options)),
      clock_(clock),
      stop_signal_(stop_signal),
      on_progress_(std::move(on_progress)),
      states_(options_.num_clones) {
  for (int clone = 0; clone < options_.num_clones; ++clone) {
    const Backoff::Options backoff{.initial = options_.initial_backoff,
                                   .maximum = options_.max_backoff};
    processes_.emplace_back(Backoff(backoff, clone));
    processes_.back().identity.session = NewSession();
  }
}

Supervisor::~Supervisor() {
  KillAll();
  for (const Process& process : processes_) {
    if (process.socket >= 0) close(process.socket);
  }
}

void Supervisor::KillAll() {
  SignalAll(SIGKILL);
  for (Process& process : processes_) {
    if (process.pid > 0) waitpid(process.pid, nullptr, 0);
    process.pid = -1;
  }
}

absl::Status Supervisor::Start(int clone) {
  Process& process = processes_[clone];
  process.training_since.reset();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  PCHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  ++process.identity.process_number;
  CHECK_EQ(SendCloneIdentity(ends[0], process.identity), absl::OkStatus());
  const std::vector<std::string> command = options_.command(clone, states_[clone]);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const char* const program = options_.program.empty() ? argv[0] : options_.program.c_str();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) ExecClone(program, argv.data(), ends[1], parent);
  const absl::Status forked = pid > 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "fork");
  close(ends[1]);
  if (!forked.ok()) {
    close(ends[0]);
    return forked;
  }
  if (process.socket >= 0) close(process.socket);
  process.pid = pid;
  process.socket = ends[0];
  process.unread.clear();
  states_[clone].phase = CloneState::Phase::kStarting;
  return absl::OkStatus();
}

void Supervisor::StartOrTryLater(int clone, int* decided) {
  const absl::Status started = Start(clone);
  if (!started.ok()) {
    states_[clone].last_death = absl::StrCat("could not be started: ", started.message());
    PlanRestart(clone, states_[clone].last_death, options_.exit_code_internal, decided);
  }
}

void Supervisor::ReadReports(int clone) {
  Process& process = processes_[clone];
  if (process.socket < 0) return;
  char buffer[4096];
  for (;;) {
    const ssize_t size = read(process.socket, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    process.unread.append(buffer, size);
  }
  size_t begin = 0;
  for (size_t end; (end = process.unread.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const absl::string_view line(process.unread.data() + begin, end - begin);
    std::optional<CloneReport> report = DecodeCloneReport(line);
    if (!report.has_value()) {
      LOG(WARNING) << "clone " << clone << " sent an invalid report: " << line;
      continue;
    }
    if (report->step > 0 && !process.training_since.has_value()) {
      process.training_since = clock_->Now();
    }
    states_[clone].report = *std::move(report);
    states_[clone].reported = true;
    states_[clone].phase = CloneState::Phase::kRunning;
  }
  process.unread.erase(0, begin);
}

void Supervisor::HandleExit(int clone, int wait_status, int* decided) {
  Process& process = processes_[clone];
  CloneState& state = states_[clone];
  process.pid = -1;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    state.phase = CloneState::Phase::kDone;
    return;
  }
  ++state.deaths;
  state.last_death = DescribeDeath(wait_status);
  if (EndedWithOneOf(options_.leaving_exit_codes, wait_status)) {
    LOG(WARNING) << "clone " << clone << " ended with " << state.last_death
                 << ", so it is out of the job; the other clones go on";
    state.phase = CloneState::Phase::kLeft;
    process.leaving_code = WEXITSTATUS(wait_status);
    return;
  }
  if (EndedWithOneOf(options_.renewing_exit_codes, wait_status)) {
    LOG(WARNING) << "clone " << clone << " ended with " << state.last_death
                 << ", which concerns all clones; stopping the others too";
    *decided = WEXITSTATUS(wait_status);
    return;
  }
  if (EndedWithOneOf(options_.permanent_exit_codes, wait_status)) {
    LOG(ERROR) << "clone " << clone << " ended with " << state.last_death
               << ", after which a clone is not started again; stopping all clones";
    *decided = WEXITSTATUS(wait_status);
    return;
  }
  // From 128 on a code says that a restart may help (docs/USAGE.md), also one of the whole worker.
  const bool may_pass = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) >= 128;
  PlanRestart(clone, absl::StrCat("died (", state.last_death, ")"),
              may_pass ? WEXITSTATUS(wait_status) : options_.exit_code_internal, decided);
}

void Supervisor::PlanRestart(int clone, absl::string_view what, int code_of_giving_up,
                             int* decided) {
  Process& process = processes_[clone];
  const std::optional<absl::Duration> delay = RestartDelay(clone);
  if (!delay.has_value()) {
    LOG(ERROR) << "clone " << clone << " " << what << "; giving up after " << process.rapid_deaths
               << " failures in a row";
    *decided = code_of_giving_up;
    return;
  }
  process.restart_at = clock_->Now() + *delay;
  states_[clone].phase = CloneState::Phase::kRestarting;
  LOG(WARNING) << "clone " << clone << " " << what << "; starting it again "
               << (*delay == absl::ZeroDuration()
                       ? "at once"
                       : absl::StrCat("in ", absl::FormatDuration(
                                                 absl::Trunc(*delay, absl::Milliseconds(1)))));
}

std::optional<absl::Duration> Supervisor::RestartDelay(int clone) {
  Process& process = processes_[clone];
  const bool was_settled = process.training_since.has_value() &&
                           clock_->Now() - *process.training_since >= options_.settled;
  if (was_settled) {
    process.rapid_deaths = 0;
    process.backoff.Reset();
    return absl::ZeroDuration();
  }
  if (++process.rapid_deaths >= options_.max_rapid_deaths) return std::nullopt;
  return process.backoff.Next();
}

void Supervisor::Reap(int* decided) {
  for (int clone = 0; clone < options_.num_clones; ++clone) {
    Process& process = processes_[clone];
    if (process.pid <= 0) continue;
    int wait_status = 0;
    if (waitpid(process.pid, &wait_status, WNOHANG) != process.pid) continue;
    ReadReports(clone);
    HandleExit(clone, wait_status, decided);
  }
}

void Supervisor::SignalAll(int signal) {
  for (const Process& process : processes_) {
    if (process.pid > 0) kill(process.pid, signal);
  }
}

bool Supervisor::AllGone() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.pid <= 0; });
}

void Supervisor::Drain(int signal) {
  SignalAll(signal);
  const absl::Duration deadline = clock_->Now() + options_.drain_timeout;
  while (!AllGone() && clock_->Now() < deadline) {
    for (int clone = 0; clone < options_.num_clones; ++clone) {
      Process& process = processes_[clone];
      const bool has_ended =
          process.pid > 0 && waitpid(process.pid, nullptr, WNOHANG) == process.pid;
      if (has_ended) process.pid = -1;
      ReadReports(clone);
    }
    clock_->Sleep(options_.poll_period / 4);
  }
  if (!AllGone()) LOG(WARNING) << "clones did not end in time; killing them";
  on_progress_(states_);
}

std::optional<int> Supervisor::CodeOfTheEnd() const {
  int code = 0;
  bool all_left = true;
  for (int clone = 0; clone < options_.num_clones; ++clone) {
    const CloneState::Phase phase = states_[clone].phase;
    if (phase != CloneState::Phase::kDone && phase != CloneState::Phase::kLeft) return std::nullopt;
    all_left = all_left && phase == CloneState::Phase::kLeft;
    code = processes_[clone].leaving_code;
  }
  return all_left ? code : 0;
}

int Supervisor::Run() {
  // A process inherits an ignored SIGCHLD from the one that started it. The kernel would then reap
  // the clones, and nobody would learn how they ended.
  PCHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
  KillAll();  // those that the last call has left
  int decided = -1;
  for (int clone = 0; clone < options_.num_clones; ++clone) {
    if (states_[clone].phase != CloneState::Phase::kLeft) StartOrTryLater(clone, &decided);
  }
  for (;;) {
    if (const int signal = stop_signal_->load(); signal != 0) {
      Drain(signal);
      return 128 + SIGTERM;
    }
    Reap(&decided);
    if (decided >= 0) {
      Drain(SIGTERM);
      return decided;
    }
    for (int clone = 0; clone < options_.num_clones; ++clone) {
      ReadReports(clone);
      CloneState& state = states_[clone];
      if (state.phase == CloneState::Phase::kRestarting &&
          clock_->Now() >= processes_[clone].restart_at) {
        StartOrTryLater(clone, &decided);
      }
    }
    on_progress_(states_);
    if (const std::optional<int> code = CodeOfTheEnd(); code.has_value()) return *code;
    clock_->Sleep(options_.poll_period);
  }
}

}  // namespace pushpull
