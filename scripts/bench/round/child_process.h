// A process that a benchmark starts, reads and waits for.
#ifndef PUSHPULL_SCRIPTS_BENCH_ROUND_CHILD_PROCESS_H_
#define PUSHPULL_SCRIPTS_BENCH_ROUND_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace pushpull {

// Not thread-safe. The destructor kills the process.
class ChildProcess {
 public:
  // arguments[0] is the path of the program. Standard error goes to stderr_path, or to ours if that
  // is empty.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::vector<std::string>& arguments, const std::string& stderr_path = "");
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns a line of standard output without its end. OUT_OF_RANGE: the output has ended.
  absl::StatusOr<std::string> ReadLine();
  bool Running();
  // Sends SIGTERM and waits for the end.
  void Stop();
  // Returns the largest resident set so far. The process must be running.
  absl::StatusOr<int64_t> PeakRssBytes() const;
  // Returns the processor time of all threads so far. The process must be running.
  absl::StatusOr<absl::Duration> CpuTime() const;

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_;
  int output_;
  std::string buffer_;
  bool reaped_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_ROUND_CHILD_PROCESS_H_
