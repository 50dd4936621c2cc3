// Tested by tests/common/wire/security/tls_files_test.cc.
#include "common/wire/security/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

struct FreeNames {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

absl::Time ToTime(const ASN1_TIME* time) {
  tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

}  // namespace

absl::Time NotBefore(const X509* x509) { return ToTime(X509_get0_notBefore(x509)); }
absl::Time NotAfter(const X509* x509) { return ToTime(X509_get0_notAfter(x509)); }

std::string SubjectOf(const X509* x509) {
  const std::unique_ptr<BIO, FreeBio> bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(x509), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, size);
}

std::string CertificateDate(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string LastOpenSslError() {
  const unsigned long code = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

absl::StatusOr<std::vector<Certificate>> Certificate::AllFromPem(absl::string_view pem) {
  ERR_clear_error();
  const std::unique_ptr<BIO, FreeBio> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<Certificate> all;
  while (X509* x509 = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.push_back(Certificate(x509));
  }
  const unsigned long code = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  const bool at_end =
      ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
  if (!at_end) {
    return absl::InvalidArgumentError(
        absl::StrCat("certificate ", all.size() + 1, " in it is damaged: ", LastOpenSslError()));
  }
  ERR_clear_error();
  if (all.empty()) {
    return absl::InvalidArgumentError("holds no certificate in PEM form (-----BEGIN CERTIFICATE)");
  }
  return all;
}

absl::StatusOr<PeerIdentity> Certificate::Identity() const {
  const std::unique_ptr<GENERAL_NAMES, FreeNames> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(x509_.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      ASN1_STRING_length(text));
  }
  if (uris.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate has ", uris.size(),
                     " URIs among its subject alternative names, expected one: "
                     "spiffe://pushpull/<job>/<role>"));
  }
  return ParsePeerIdentity(uris[0]);
}

absl::Status Certificate::CheckUsage(TlsSide side) const {
  const bool server = side == TlsSide::kServer;
  const uint32_t wanted = server ? XKU_SSL_SERVER : XKU_SSL_CLIENT;
  const bool stated = (X509_get_extension_flags(x509_.get()) & EXFLAG_XKUSAGE) != 0;
  if (stated && (X509_get_extended_key_usage(x509_.get()) & wanted) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the certificate's extended key usage lacks ",
                                                 server ? "serverAuth" : "clientAuth"));
}

absl::Status Certificate::CheckDates(absl::Time now) const {
  const absl::Time not_before = NotBefore(x509_.get());
  const absl::Time not_after = NotAfter(x509_.get());
  if (now > not_after) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate has expired at ", CertificateDate(not_after)));
  }
  if (now < not_before) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate is not valid before ",
                                                   CertificateDate(not_before),
                                                   "; is the clock right?"));
  }
  return absl::OkStatus();
}

bool Certificate::IsForHost(const std::string& host) const {
  if (host.empty()) return false;
  if (X509_check_ip_asc(x509_.get(), host.c_str(), 0) == 1) return true;
  return X509_check_host(x509_.get(), host.c_str(), host.size(),
                         X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) == 1;
}

}  // namespace pushpull
