// Monitors the TLS files and logs what gRPC does not report: that the files were replaced, that
// they are wrong or do not fit together, and that the certificate, or one that has signed it,
// expires soon. Each change is logged once. As long as the files are wrong or a certificate expires
// soon, that is logged again every day.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_MONITOR_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_MONITOR_H_

#include <string>
#include <thread>

#include "absl/time/time.h"

#include "common/base/monotonic_wait.h"
#include "common/wire/security/tls_files.h"
#include "common/wire/transport_security.h"

namespace pushpull {

// Decides what to log after each check of the files. Not thread-safe; has no thread and no clock.
class TlsFilesReport {
 public:
  TlsFilesReport(const TlsFiles& files, const OwnCertificate& own) : files_(files), known_(own) {}

  struct Line {
    std::string text;  // empty: nothing to log
    bool warning = false;
  };
  // Returns the line for the changes since the previous call. A problem or the coming expiry is
  // repeated a day after it was reported. found: the result of CheckTlsFiles at the time `now`.
  Line Look(const absl::StatusOr<OwnCertificate>& found, absl::Time now);

 private:
  const TlsFiles files_;
  OwnCertificate known_;
  std::string problem_;  // message of the current error, already reported; empty: none
  absl::Time warned_ = absl::InfinitePast();  // when the present problem or expiry was reported
};

// Checks the files every few seconds on a background thread, which the destructor ends.
class TlsFilesMonitor {
 public:
  TlsFilesMonitor(const TlsFiles& files, const OwnCertificate& own);
  ~TlsFilesMonitor();
  TlsFilesMonitor(const TlsFilesMonitor&) = delete;
  TlsFilesMonitor& operator=(const TlsFilesMonitor&) = delete;

 private:
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_MONITOR_H_
