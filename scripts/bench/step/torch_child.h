// The PyTorch process of a benchmark: a child (gpu_step_torch.py) that answers requests. Request
// and answer are one line each.
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

// Thread-compatible. The caller has to ignore SIGPIPE.
class TorchChild {
 public:
  // Searches PATH for `command`. NOT_FOUND: it cannot be started.
  static absl::StatusOr<std::unique_ptr<TorchChild>> Start(const std::vector<std::string>& command);
  // Closes the child's input, which makes it end, and kills it if it still runs after 5 s.
  ~TorchChild();
  TorchChild(const TorchChild&) = delete;
  TorchChild& operator=(const TorchChild&) = delete;

  // Returns the answer, an object. FAILED_PRECONDITION: the answer is an error with the message as
  // its text; later requests may succeed. DEADLINE_EXCEEDED, UNAVAILABLE: no answer came, and no
  // later one will.
  absl::StatusOr<nlohmann::json> Ask(const std::string& request, absl::Duration timeout);

 private:
  TorchChild(pid_t pid, int to_child, int from_child)
      : pid_(pid), to_child_(to_child), from_child_(from_child) {}
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);

  const pid_t pid_;
  int to_child_;
  const int from_child_;
  std::string buffer_;  // bytes after the last complete line
};

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_TORCH_CHILD_H_
