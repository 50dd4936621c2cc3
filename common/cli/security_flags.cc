#include "common/cli/security_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/cli/exit_codes.h"

ABSL_FLAG(std::string, tls_ca, "",
          "PEM file with the certificates of the authorities that peers are accepted from; "
          "together with --tls_cert and --tls_key it turns on mutual TLS");
ABSL_FLAG(std::string, tls_cert, "", "PEM file with this program's certificate");
ABSL_FLAG(std::string, tls_key, "",
          "PEM file with the private key of --tls_cert; must be readable by its owner alone; the "
          "group may read it if root owns it");
ABSL_FLAG(bool, insecure, false,
          "allow plaintext beyond this machine: everybody who reaches the port can read and change "
          "the training");

namespace pushpull {

absl::StatusOr<TransportSecurity> TransportSecurityFromFlags() {
  TransportSecurity security;
  security.insecure = absl::GetFlag(FLAGS_insecure);
  TlsFiles files{absl::GetFlag(FLAGS_tls_ca), absl::GetFlag(FLAGS_tls_cert),
                 absl::GetFlag(FLAGS_tls_key)};
  std::vector<std::string> missing;
  if (files.ca.empty()) missing.push_back("--tls_ca");
  if (files.cert.empty()) missing.push_back("--tls_cert");
  if (files.key.empty()) missing.push_back("--tls_key");
  if (missing.size() == 3) return security;
  if (!missing.empty()) {
    return UsageError(absl::StrCat("TLS needs --tls_ca, --tls_cert and --tls_key; missing: ",
                                   absl::StrJoin(missing, ", ")));
  }
  if (security.insecure) {
    return UsageError("--insecure contradicts --tls_ca, --tls_cert and --tls_key: leave it out");
  }
  security.tls = std::move(files);
  return security;
}

absl::Status CheckAddresses(const TransportSecurity& security,
                            const std::vector<std::string>& addresses) {
  const absl::Status exposure = CheckExposure(security, addresses);
  if (!exposure.ok()) return UsageError(exposure.message());
  if (security.tls.has_value()) return absl::OkStatus();
  for (const std::string& address : addresses) {
    if (IsLocalAddress(address)) continue;
    LOG(WARNING) << "--insecure: everybody who reaches " << address
                 << " can read and change the training; TLS: scripts/make_certs.sh";
    break;
  }
  return absl::OkStatus();
}

}  // namespace pushpull
