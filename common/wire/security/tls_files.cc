#include "common/wire/security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/wire/security/certificate.h"
#include "common/wire/security/private_file.h"

namespace pushpull {
namespace {

// A certificate and its key are copied to a host within this time of each other.
constexpr absl::Duration kReplacing = absl::Seconds(5);
constexpr absl::Duration kNextCheck = absl::Milliseconds(200);

absl::Status InFile(absl::string_view what, const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return Annotated(status, absl::StrCat(what, " ", path, ": ", status.message()));
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeStore {
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
};
struct FreeContext {
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
};
struct FreeStack {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};

int NoPassphrase(char*, int, int, void*) { return -1; }

// Overwrites `pem`, so that no copy of the key remains in memory.
absl::Status CheckKey(const Certificate& certificate, std::string pem) {
  ERR_clear_error();
  const bool encrypted =
      absl::StrContains(pem, "ENCRYPTED PRIVATE KEY") || absl::StrContains(pem, "Proc-Type: 4");
  std::unique_ptr<EVP_PKEY, FreeKey> key;
  {
    const std::unique_ptr<BIO, FreeBio> bio(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  }
  OPENSSL_cleanse(pem.data(), pem.size());
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        encrypted ? "is encrypted; give a key without a passphrase, protected by its mode"
                  : "holds no private key in PEM form, or a damaged one");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("is not the key of the certificate");
  }
  return absl::OkStatus();
}

// Returns the certificate of `chain`, after the first, that expires first, if it does so before the
// first.
std::optional<OwnCertificate::Signer> FirstToExpire(const STACK_OF(X509) * chain) {
  std::optional<OwnCertificate::Signer> first;
  absl::Time end = NotAfter(sk_X509_value(chain, 0));
  for (int i = 1; i < sk_X509_num(chain); ++i) {
    const X509* const signer = sk_X509_value(chain, i);
    if (NotAfter(signer) >= end) continue;
    end = NotAfter(signer);
    first = {SubjectOf(signer), NotBefore(signer), end};
  }
  return first;
}

// Returns the signer of chain[0] that expires first, if it does so before chain[0].
absl::StatusOr<std::optional<OwnCertificate::Signer>> CheckChain(
    const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities,
    absl::Time now) {
  const std::unique_ptr<X509_STORE, FreeStore> store(X509_STORE_new());
  for (const Certificate& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  const std::unique_ptr<STACK_OF(X509), FreeStack> others(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others.get(), chain[i].get());
  const std::unique_ptr<X509_STORE_CTX, FreeContext> context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), others.get());
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  const bool trusted = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  if (trusted) return FirstToExpire(X509_STORE_CTX_get0_chain(context.get()));
  if (error == X509_V_ERR_CERT_HAS_EXPIRED) {
    const X509* const expired = X509_STORE_CTX_get_current_cert(context.get());
    return absl::InvalidArgumentError(absl::StrCat("is signed by ", SubjectOf(expired),
                                                   ", whose certificate has expired at ",
                                                   CertificateDate(NotAfter(expired))));
  }
  return absl::InvalidArgumentError(absl::StrCat("is not signed by an authority in the CA file: ",
                                                 X509_verify_cert_error_string(error)));
}

std::string Fingerprint(const Certificate& certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  X509_digest(certificate.get(), EVP_sha256(), digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

absl::StatusOr<OwnCertificate> CheckCertificate(const std::vector<Certificate>& chain,
                                                const std::vector<Certificate>& authorities,
                                                absl::Time now) {
  const Certificate& own = chain[0];
  OwnCertificate result;
  PP_RETURN_IF_ERROR(own.CheckDates(now));
  PP_ASSIGN_OR_RETURN(result.first_to_expire, CheckChain(chain, authorities, now));
  PP_ASSIGN_OR_RETURN(result.identity, own.Identity());
  PP_RETURN_IF_ERROR(own.CheckUsage(TlsSide::kClient));
  if (result.identity.role == PeerRole::kPs) {
    PP_RETURN_IF_ERROR(own.CheckUsage(TlsSide::kServer));
  }
  result.not_before = NotBefore(own.get());
  result.not_after = NotAfter(own.get());
  result.fingerprint = Fingerprint(own);
  return result;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::string pem, ReadSecurityFile(path, Secrecy::kPublic));
  return Certificate::AllFromPem(pem);
}

// Returns whether a file was written, or renamed to its place, less than kReplacing ago. A time of
// change in the future, by the clock of a file server, counts as now.
bool AreBeingReplaced(const TlsFiles& files) {
  for (const std::string* const path : {&files.ca, &files.cert, &files.key}) {
    struct stat info {};
    if (stat(path->c_str(), &info) != 0) continue;
    if (absl::Now() - absl::TimeFromTimespec(info.st_ctim) < kReplacing) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<OwnCertificate> CheckTlsFiles(const TlsFiles& files, absl::Time now) {
  const absl::StatusOr<std::vector<Certificate>> authorities = ReadCertificates(files.ca);
  PP_RETURN_IF_ERROR(InFile("TLS authorities", files.ca, authorities.status()));
  const absl::StatusOr<std::vector<Certificate>> chain = ReadCertificates(files.cert);
  PP_RETURN_IF_ERROR(InFile("TLS certificate", files.cert, chain.status()));
  absl::StatusOr<std::string> key = ReadSecurityFile(files.key, Secrecy::kPrivate);
  PP_RETURN_IF_ERROR(InFile("TLS key", files.key, key.status()));
  PP_RETURN_IF_ERROR(InFile("TLS key", files.key, CheckKey((*chain)[0], *std::move(key))));
  absl::StatusOr<OwnCertificate> own = CheckCertificate(*chain, *authorities, now);
  PP_RETURN_IF_ERROR(InFile("TLS certificate", files.cert, own.status()));
  return own;
}

absl::StatusOr<OwnCertificate> AwaitTlsFiles(const TlsFiles& files) {
  const Deadline deadline(kReplacing);
  for (;;) {
    absl::StatusOr<OwnCertificate> own = CheckTlsFiles(files, absl::Now());
    if (own.ok() || deadline.HasPassed() || !AreBeingReplaced(files)) return own;
    SteadyClock().Sleep(kNextCheck);
  }
}

}  // namespace pushpull
