// Certificates for tests: valid ones, made by scripts/make_certs.sh, and invalid ones that the
// script would never make, signed by the same authority or by others.
#ifndef PUSHPULL_TESTS_COMMON_WIRE_SECURITY_TEST_CERTIFICATES_H_
#define PUSHPULL_TESTS_COMMON_WIRE_SECURITY_TEST_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/wire/transport_security.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {

struct CertificateSpec {
  enum class Signer { kJob, kOther, kSelf };
  // In the syntax of OpenSSL's configuration.
  std::string names = "URI:spiffe://pushpull/test/worker/0-1";
  std::string usage = "clientAuth";  // empty: no such extension
  absl::Time not_before = absl::Now() - absl::Hours(1);
  absl::Time not_after = absl::Now() + absl::Hours(1);
  Signer signer = Signer::kJob;
};

inline constexpr char kLocalNames[] = ",DNS:localhost,IP:127.0.0.1";

// Works in a folder of its own. Any failure to make a certificate ends the process.
class TestCertificates {
 public:
  // Runs make_certs.sh for the job "test": ps-0, worker-0 (worker_ids 0 and 1), evaluator, admin.
  TestCertificates();

  // Runs make_certs.sh again with these arguments added. Returns its output.
  std::string MakeCerts(const std::string& arguments) const;

  const std::string& folder() const { return folder_.path(); }
  // A certificate that make_certs.sh has made: "ps-0", "worker-0", "evaluator" or "admin".
  TlsFiles Of(const std::string& name) const;
  // Makes <folder>/<name>.pem and <folder>/<name>.key, and replaces existing files.
  TlsFiles Issue(const std::string& name, const CertificateSpec& spec) const;

  // For small files that must exist.
  static std::string Read(const std::string& path);
  // Writes with mode 0600 and renames into place.
  static void Write(const std::string& path, const std::string& text);

 private:
  const TestFolder folder_;
};

// Returns the output of a shell command, both standard output and standard error.
std::string OutputOf(const std::string& command, int* exit_code);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_COMMON_WIRE_SECURITY_TEST_CERTIFICATES_H_
