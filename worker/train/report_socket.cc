#include "worker/train/report_socket.h"

#include <sys/socket.h>

#include <string>

#include "worker/train/clone_report_codec.h"

namespace pushpull {

void ReportSocket::Send(const CloneReport& report) {
  const absl::Duration now = clock_.Now();
  if (now - last_ < kPeriod && report.waiting_for.empty()) {
    unsent_ = report;
    return;
  }
  last_ = now;
  unsent_.reset();
  Write(report);
}

void ReportSocket::Flush() {
  if (!unsent_.has_value()) return;
  Write(*unsent_);
  unsent_.reset();
}

void ReportSocket::Write(const CloneReport& report) const {
  const std::string line = EncodeCloneReport(report);
  (void)!send(socket_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace pushpull
