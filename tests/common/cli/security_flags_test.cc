#include "common/cli/security_flags.h"

#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/cli/exit_codes.h"

ABSL_DECLARE_FLAG(std::string, tls_ca);
ABSL_DECLARE_FLAG(std::string, tls_cert);
ABSL_DECLARE_FLAG(std::string, tls_key);
ABSL_DECLARE_FLAG(bool, insecure);

namespace pushpull {
namespace {

class SecurityFlagsTest : public testing::Test {
 protected:
  void Give(const std::string& ca, const std::string& cert, const std::string& key, bool insecure) {
    absl::SetFlag(&FLAGS_tls_ca, ca);
    absl::SetFlag(&FLAGS_tls_cert, cert);
    absl::SetFlag(&FLAGS_tls_key, key);
    absl::SetFlag(&FLAGS_insecure, insecure);
  }

 private:
  const absl::FlagSaver saver_;
};

TEST_F(SecurityFlagsTest, NeedsAllThreeFilesOrNone) {
  Give("", "", "", false);
  EXPECT_FALSE(TransportSecurityFromFlags()->tls.has_value());
  Give("a", "b", "c", false);
  const auto security = TransportSecurityFromFlags();
  ASSERT_TRUE(security.ok());
  EXPECT_EQ(security->tls->ca + security->tls->cert + security->tls->key, "abc");
  for (int given = 1; given < 7; ++given) {
    Give(given & 1 ? "a" : "", given & 2 ? "b" : "", given & 4 ? "c" : "", false);
    const absl::Status status = TransportSecurityFromFlags().status();
    EXPECT_EQ(ExitCodeOf(status), kExitUsage) << status;
    EXPECT_EQ(absl::StrContains(status.message(), "missing: --tls_ca"), (given & 1) == 0) << status;
    const std::string missing(status.message().substr(status.message().find("missing")));
    EXPECT_EQ(absl::StrContains(missing, "--tls_cert"), (given & 2) == 0) << status;
    EXPECT_EQ(absl::StrContains(missing, "--tls_key"), (given & 4) == 0) << status;
  }
}

TEST_F(SecurityFlagsTest, InsecureMayOnlyBeGivenWithPlaintext) {
  Give("", "", "", true);
  EXPECT_TRUE(TransportSecurityFromFlags()->insecure);
  Give("a", "b", "c", true);
  EXPECT_EQ(ExitCodeOf(TransportSecurityFromFlags().status()), kExitUsage);
}

TEST_F(SecurityFlagsTest, RemoteAddressesNeedTlsOrInsecure) {
  EXPECT_EQ(ExitCodeOf(CheckAddresses({}, {"127.0.0.1:1", "ps0:2222"})), kExitUsage);
  EXPECT_TRUE(CheckAddresses({}, {"127.0.0.1:1"}).ok());
  TransportSecurity security;
  security.insecure = true;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(CheckAddresses(security, {"127.0.0.1:1", "ps0:2222"}).ok());
  EXPECT_TRUE(CheckAddresses(security, {"127.0.0.1:1"}).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("everybody who reaches ps0:2222"), std::string::npos) << log;
  EXPECT_EQ(log.find("127.0.0.1"), std::string::npos) << log;
}

}  // namespace
}  // namespace pushpull
