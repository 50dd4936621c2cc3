// Tested by tests/common/wire/security/tls_files_test.cc.
#include "common/wire/security/tls_files_monitor.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

#include "common/wire/security/certificate.h"

namespace pushpull {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(2);
constexpr int kShares = 10;  // warns in the last tenth of a certificate's lifetime
constexpr absl::Duration kRepeat = absl::Hours(24);

// Returns what makes this process use another certificate.
absl::string_view HowToReplace(const TlsFiles& files) {
  return absl::StartsWith(files.cert, "/run/credentials/")
             ? "replace the TLS files and restart this service (systemctl try-restart), because "
               "systemd copies them only when it starts a service"
             : "replace the TLS files";
}

}  // namespace

TlsFilesReport::Line TlsFilesReport::Look(const absl::StatusOr<OwnCertificate>& found,
                                          absl::Time now) {
  if (!found.ok()) {
    const std::string problem(found.status().message());
    if (problem == problem_ && now - warned_ < kRepeat) return {};
    problem_ = problem;
    warned_ = now;
    return {absl::StrCat("new connections will fail: ", problem, "; ", HowToReplace(files_)), true};
  }
  const bool repaired = !problem_.empty();
  problem_.clear();
  if (found->fingerprint != known_.fingerprint || repaired) {
    const bool same_identity = found->identity == known_.identity;
    const std::string before = PeerIdentityUri(known_.identity);
    known_ = *found;
    warned_ = absl::InfinitePast();
    return {absl::StrCat("TLS certificate replaced: ", PeerIdentityUri(found->identity),
                         same_identity ? "" : absl::StrCat(" (before: ", before, ")"),
                         ", valid until ", CertificateDate(found->not_after)),
            !same_identity};
  }
  known_ = *found;  // An authority's certificate may have been renewed.
  const std::optional<OwnCertificate::Signer>& signer = known_.first_to_expire;
  const absl::Time begin = signer.has_value() ? signer->not_before : known_.not_before;
  const absl::Time end = signer.has_value() ? signer->not_after : known_.not_after;
  if (now - warned_ < kRepeat || end - now > (end - begin) / kShares) return {};
  warned_ = now;
  return {absl::StrCat("TLS certificate ", files_.cert,
                       signer.has_value()
                           ? absl::StrCat(" is signed by ", signer->subject, ", whose certificate")
                           : "",
                       " expires at ", CertificateDate(end), ": ",
                       signer.has_value() ? "issue certificates of a new authority (SECURITY.md, "
                                            "\"Replace the authority\") and "
                                          : "",
                       HowToReplace(files_)),
          true};
}

TlsFilesMonitor::TlsFilesMonitor(const TlsFiles& files, const OwnCertificate& own)
    : thread_([this, files, report = TlsFilesReport(files, own)]() mutable {
        while (!stop_.WaitFor(kPeriod)) {
          const absl::Time now = absl::Now();
          const TlsFilesReport::Line line = report.Look(CheckTlsFiles(files, now), now);
          LOG_IF(WARNING, !line.text.empty() && line.warning) << line.text;
          LOG_IF(INFO, !line.text.empty() && !line.warning) << line.text;
        }
      }) {}

TlsFilesMonitor::~TlsFilesMonitor() {
  stop_.Raise();
  thread_.join();
}

}  // namespace pushpull
