#include "scripts/bench/round/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::vector<std::string>& arguments, const std::string& stderr_path) {
  if (access(arguments[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(arguments[0], ": no such program; build it first"));
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fds[1], STDOUT_FILENO);
    if (!stderr_path.empty()) {
      const int fd = open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      if (fd >= 0) dup2(fd, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(fds[1]);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, fds[0]));
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

absl::StatusOr<std::string> ChildProcess::ReadLine() {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char piece[4096];
    const ssize_t count = read(output_, piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::OutOfRangeError("the process has closed its output");
    buffer_.append(piece, count);
  }
}

bool ChildProcess::Running() {
  if (!reaped_ && waitpid(pid_, nullptr, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

void ChildProcess::Stop() {
  if (reaped_) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  reaped_ = true;
}

absl::StatusOr<int64_t> ChildProcess::PeakRssBytes() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("VmHWM:", 0) != 0) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kilobytes = 0;
    if (words.size() == 3 && absl::SimpleAtoi(words[1], &kilobytes)) return kilobytes * 1024;
  }
  return absl::NotFoundError(absl::StrCat("no VmHWM of process ", pid_));
}

absl::StatusOr<absl::Duration> ChildProcess::CpuTime() const {
  // The thread counters are in nanoseconds, while the stat file of the process counts clock ticks.
  absl::Duration total;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), error)) {
    std::ifstream file(entry.path() / "schedstat");
    int64_t nanoseconds = 0;
    if (file >> nanoseconds) total += absl::Nanoseconds(nanoseconds);
  }
  if (error) return absl::NotFoundError(absl::StrCat("no process ", pid_));
  return total;
}

}  // namespace pushpull
