// Sends a clone's reports to its supervisor.
#ifndef PUSHPULL_WORKER_TRAIN_REPORT_SOCKET_H_
#define PUSHPULL_WORKER_TRAIN_REPORT_SOCKET_H_

#include <optional>

#include "absl/time/time.h"

#include "common/base/clock.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {

// Writes reports to a socket, at most one per kPeriod unless the clone is waiting. Never blocks: if
// the supervisor does not read or has ended, a report is lost. Thread-compatible.
class ReportSocket {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(200);

  // The socket stays the caller's. `clock` must outlive this object.
  ReportSocket(int socket, const Clock* clock) : socket_(socket), clock_(*clock) {}

  void Send(const CloneReport& report);
  // Writes the last report if Send has not.
  void Flush();

 private:
  void Write(const CloneReport& report) const;

  const int socket_;
  const Clock& clock_;
  std::optional<CloneReport> unsent_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_REPORT_SOCKET_H_
