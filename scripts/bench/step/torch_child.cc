#include "scripts/bench/step/torch_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

extern char** environ;

namespace pushpull {

absl::StatusOr<std::unique_ptr<TorchChild>> TorchChild::Start(
    const std::vector<std::string>& command) {
  CHECK(!command.empty());
  int requests[2], answers[2];
  PCHECK(pipe2(requests, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, requests[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(requests[0]);
  close(answers[1]);
  if (error != 0) {
    close(requests[1]);
    close(answers[0]);
    return absl::NotFoundError(
        absl::StrCat("cannot start ", absl::StrJoin(command, " "), ": ", std::strerror(error)));
  }
  return std::unique_ptr<TorchChild>(new TorchChild(pid, requests[1], answers[0]));
}

TorchChild::~TorchChild() {
  close(to_child_);
  close(from_child_);
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (absl::Now() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      return;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

absl::StatusOr<std::string> TorchChild::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the PyTorch process did not answer in ", absl::FormatDuration(timeout)));
    }
    pollfd waiting{from_child_, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno == EINTR) continue;
    PCHECK(ready >= 0);
    if (ready == 0) continue;
    char chunk[4096];
    const ssize_t size = read(from_child_, chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      return absl::UnavailableError("the PyTorch process ended; its output is above");
    }
    buffer_.append(chunk, size);
  }
}

absl::StatusOr<nlohmann::json> TorchChild::Ask(const std::string& request, absl::Duration timeout) {
  const std::string line = request + "\n";
  // A request is far smaller than the pipe's buffer.
  if (write(to_child_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return absl::UnavailableError(
        absl::StrCat("the PyTorch process takes no requests: ", std::strerror(errno)));
  }
  PP_ASSIGN_OR_RETURN(const std::string text, ReadLine(timeout));
  nlohmann::json answer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    return absl::UnavailableError(
        absl::StrCat("the PyTorch process answered \"", text, "\", expected a line of JSON"));
  }
  if (answer.contains("error")) {
    return absl::FailedPreconditionError(answer["error"].get<std::string>());
  }
  return answer;
}

}  // namespace pushpull
