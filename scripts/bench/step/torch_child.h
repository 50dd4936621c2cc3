// PyTorch's side of a benchmark: a child process (gpu_step_torch.py) that answers requests, a line
// each way.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_TORCH_CHILD_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_TORCH_CHILD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace pushpull {

// Thread-compatible. The caller ignores SIGPIPE.
class TorchChild {
 public:
  // `command` is looked for in PATH. NOT_FOUND: it cannot be started.
  static absl::StatusOr<std::unique_ptr<TorchChild>> Start(const std::vector<std::string>& command);
  // Closes the child's input, which ends it, and kills it if it is still there after 5 s.
  ~TorchChild();
  TorchChild(const TorchChild&) = delete;
  TorchChild& operator=(const TorchChild&) = delete;

  // The answer, an object. FAILED_PRECONDITION: the answer is an error, whose text is the message;
  // the next request may do better. DEADLINE_EXCEEDED, UNAVAILABLE: no answer came, and none will.
  absl::StatusOr<nlohmann::json> Ask(const std::string& request, absl::Duration timeout);

 private:
  TorchChild(pid_t pid, int to_child, int from_child)
      : pid_(pid), to_child_(to_child), from_child_(from_child) {}
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);

  const pid_t pid_;
  int to_child_;
  const int from_child_;
  std::string buffer_;  // what came after the last line
};

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_TORCH_CHILD_H_
