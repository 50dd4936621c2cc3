// One X.509 certificate and the questions that both sides of a connection ask about it. OpenSSL's
// objects stay inside.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_CERTIFICATE_H_
#define PUSHPULL_COMMON_RPC_SECURITY_CERTIFICATE_H_

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/rpc/security/peer_identity.h"

namespace pushpull {

enum class TlsSide { kServer, kClient };

// Immutable; not thread-safe beyond that (OpenSSL caches extensions).
class Certificate {
 public:
  // All certificates of a PEM text, in order; at least one. INVALID_ARGUMENT says what is wrong
  // with it, without quoting it.
  static absl::StatusOr<std::vector<Certificate>> AllFromPem(absl::string_view pem);

  // INVALID_ARGUMENT: no identity among the URIs, or several.
  absl::StatusOr<PeerIdentity> Identity() const;
  // INVALID_ARGUMENT unless the extended key usage names this side of a connection. An absent
  // extension means "anything" elsewhere, here it means no.
  absl::Status CheckUsage(TlsSide side) const;
  // INVALID_ARGUMENT naming the dates.
  absl::Status CheckDates(absl::Time now) const;
  // host: a DNS name or a numeric address. Only subject alternative names count.
  bool IsForHost(const std::string& host) const;
  absl::Time not_before() const;
  absl::Time not_after() const;

  X509* get() const { return x509_.get(); }

 private:
  struct Free {
    void operator()(X509* x509) const { X509_free(x509); }
  };
  explicit Certificate(X509* x509) : x509_(x509) {}

  std::unique_ptr<X509, Free> x509_;
};

// What OpenSSL put into its error queue last, which is emptied.
std::string LastOpenSslError();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_CERTIFICATE_H_
