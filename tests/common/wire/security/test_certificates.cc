#include "tests/common/wire/security/test_certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* x509) const { X509_free(x509); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using X509Ptr = std::unique_ptr<X509, Free>;
using Bio = std::unique_ptr<BIO, Free>;

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT(google-runtime-int): OpenSSL's type
  return std::string(data, size);
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

void SetSubject(X509* x509, const std::string& name) {
  CHECK_EQ(1, X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                                         reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                                         -1, 0));
}

void AddExtension(X509* x509, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, x509, x509, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  CHECK(extension != nullptr) << value;
  CHECK_EQ(1, X509_add_ext(x509, extension.get(), -1));
}

// A certificate without extensions of the subject and without a signature.
X509Ptr Blank(const std::string& name, EVP_PKEY* key, absl::Time not_before, absl::Time not_after) {
  static std::atomic<int> serial{1};
  X509Ptr x509(X509_new());
  X509_set_version(x509.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), getpid() * 1000L + serial++);
  ASN1_TIME_set(X509_getm_notBefore(x509.get()), absl::ToTimeT(not_before));
  ASN1_TIME_set(X509_getm_notAfter(x509.get()), absl::ToTimeT(not_after));
  X509_set_pubkey(x509.get(), key);
  SetSubject(x509.get(), name);
  return x509;
}

}  // namespace

std::string OutputOf(const std::string& command, int* exit_code) {
  FILE* pipe = popen(absl::StrCat("{ ", command, "; } 2>&1 < /dev/null").c_str(), "r");
  PCHECK(pipe != nullptr);
  std::string output;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, got);
  const int status = pclose(pipe);
  *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

TestCertificates::TestCertificates() {
  MakeCerts("--ps=127.0.0.1 --workers=1 --clones=2 --evaluators --admin");
}

std::string TestCertificates::MakeCerts(const std::string& arguments) const {
  int code = 0;
  const std::string output =
      OutputOf(absl::StrCat(PUSHPULL_SOURCE_DIR, "/scripts/make_certs.sh --out=", folder(),
                            " --job=test ", arguments),
               &code);
  CHECK_EQ(0, code) << output;
  return output;
}

TlsFiles TestCertificates::Of(const std::string& name) const {
  return {absl::StrCat(folder(), "/ca.pem"), absl::StrCat(folder(), "/", name, ".pem"),
          absl::StrCat(folder(), "/", name, ".key")};
}

TlsFiles TestCertificates::Issue(const std::string& name, const CertificateSpec& spec) const {
  const Key key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr);
  const X509Ptr x509 = Blank(name, key.get(), spec.not_before, spec.not_after);
  AddExtension(x509.get(), NID_basic_constraints, "critical,CA:FALSE");
  if (!spec.names.empty()) AddExtension(x509.get(), NID_subject_alt_name, spec.names);
  if (!spec.usage.empty()) AddExtension(x509.get(), NID_ext_key_usage, spec.usage);

  Key signing_key;
  if (spec.signer == CertificateSpec::Signer::kSelf) {
    X509_set_issuer_name(x509.get(), X509_get_subject_name(x509.get()));
  } else {
    // The other authority has the same name as the job's, but another key.
    const std::string ca = Read(absl::StrCat(folder(), "/authority/ca.pem"));
    const X509Ptr authority(PEM_read_bio_X509(BioOf(ca).get(), nullptr, nullptr, nullptr));
    X509_set_issuer_name(x509.get(), X509_get_subject_name(authority.get()));
    const std::string pem = Read(absl::StrCat(folder(), "/authority/ca.key"));
    signing_key.reset(spec.signer == CertificateSpec::Signer::kOther
                          ? EVP_EC_gen("P-256")
                          : PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, nullptr, nullptr));
  }
  EVP_PKEY* const signer = signing_key == nullptr ? key.get() : signing_key.get();
  CHECK_GT(X509_sign(x509.get(), signer, EVP_sha256()), 0);

  const Bio certificate_pem(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(certificate_pem.get(), x509.get());
  const Bio key_pem(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  const TlsFiles files = Of(name);
  Write(files.cert, Text(certificate_pem.get()));
  Write(files.key, Text(key_pem.get()));
  return files;
}

std::string TestCertificates::Read(const std::string& path) {
  std::ifstream file(path);
  CHECK(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void TestCertificates::Write(const std::string& path, const std::string& text) {
  const std::string fresh = absl::StrCat(path, ".new");
  std::ofstream(fresh) << text;
  PCHECK(chmod(fresh.c_str(), 0600) == 0);
  PCHECK(rename(fresh.c_str(), path.c_str()) == 0);
}

}  // namespace pushpull
