// Tells in the log what gRPC keeps to itself: that replaced TLS files were taken, that they do not
// fit, that the certificate is about to expire.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_WATCH_H_
#define PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_WATCH_H_

#include <string>
#include <thread>

#include "absl/time/time.h"

#include "common/monotonic_wait.h"
#include "common/rpc/security/tls_files.h"
#include "common/transport_security.h"

namespace pushpull {

// What to say after looking at the files once more. A value, without thread or clock.
class TlsFilesReport {
 public:
  explicit TlsFilesReport(const OwnCertificate& own) : known_(own) {}

  struct Line {
    std::string text;  // empty: nothing new
    bool warning = false;
  };
  Line Look(const absl::StatusOr<OwnCertificate>& found, absl::Time now);

 private:
  OwnCertificate known_;
  std::string problem_;  // the last one that was told
  bool told_of_expiry_ = false;
};

// Looks every few seconds on a thread of its own, which the destructor ends.
class TlsFilesWatch {
 public:
  TlsFilesWatch(const TlsFiles& files, const OwnCertificate& own);
  ~TlsFilesWatch();
  TlsFilesWatch(const TlsFilesWatch&) = delete;
  TlsFilesWatch& operator=(const TlsFilesWatch&) = delete;

 private:
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_WATCH_H_
