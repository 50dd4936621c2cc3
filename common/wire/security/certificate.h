// An X.509 certificate, with the checks that both sides of a connection make. Wraps OpenSSL.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_CERTIFICATE_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_CERTIFICATE_H_

#include <openssl/bio.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/wire/security/peer_identity.h"

namespace pushpull {

enum class TlsSide { kServer, kClient };

// Frees a BIO that a std::unique_ptr owns.
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};

// Move-only. Not thread-safe: OpenSSL caches parsed extensions even in const functions.
class Certificate {
 public:
  // All certificates in a PEM text, in order; at least one. INVALID_ARGUMENT: there is none, or one
  // is damaged. The message does not quote the text.
  static absl::StatusOr<std::vector<Certificate>> AllFromPem(absl::string_view pem);

  // The identity in the subject alternative names. INVALID_ARGUMENT: there is not exactly one URI,
  // or it is not an identity (ParsePeerIdentity).
  absl::StatusOr<PeerIdentity> Identity() const;
  // INVALID_ARGUMENT: the extended key usage does not include this side of a connection. Unlike in
  // X.509, a certificate without the extension is refused.
  absl::Status CheckUsage(TlsSide side) const;
  // INVALID_ARGUMENT: `now` is outside of the validity period. The message names the end of the
  // period that was missed, and not `now`, so that it stays the same until the certificate is
  // replaced.
  absl::Status CheckDates(absl::Time now) const;
  // Returns whether the certificate is valid for `host`, a DNS name or a numeric address. Looks
  // only at the subject alternative names, not at the subject's common name.
  bool IsForHost(const std::string& host) const;

  // Valid as long as this object.
  X509* get() const { return x509_.get(); }

 private:
  struct Free {
    void operator()(X509* x509) const { X509_free(x509); }
  };
  explicit Certificate(X509* x509) : x509_(x509) {}

  std::unique_ptr<X509, Free> x509_;
};

// The times between which a certificate is valid.
absl::Time NotBefore(const X509* x509);
absl::Time NotAfter(const X509* x509);
// The certificate's subject as in RFC 2253, for messages. Example: "CN=digits authority".
std::string SubjectOf(const X509* x509);
// A time for messages. Example: "2026-12-01 11:15:06 UTC".
std::string CertificateDate(absl::Time time);

// Returns the last error in OpenSSL's error queue of this thread, and empties the queue.
std::string LastOpenSslError();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_CERTIFICATE_H_
