#include "common/wire/security/tls_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/security/tls_files_monitor.h"
#include "common/wire/security/transport_credentials.h"
#include "tests/common/wire/security/test_certificates.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Signer = CertificateSpec::Signer;

TEST(TlsFilesTest, AcceptsTheFilesOfMakeCerts) {
  const TestCertificates certificates;
  const struct {
    const char* name;
    PeerIdentity identity;
  } parts[] = {{"ps-0", {"test", PeerRole::kPs, {}}},
               {"worker-0", {"test", PeerRole::kWorker, {0, 1}}},
               {"evaluator", {"test", PeerRole::kEvaluator, {}}},
               {"admin", {"test", PeerRole::kAdmin, {}}}};
  for (const auto& part : parts) {
    const auto own = CheckTlsFiles(certificates.Of(part.name), absl::Now());
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ(own->identity, part.identity);
    EXPECT_GT(own->not_after, absl::Now() + absl::Hours(24 * 29));
    EXPECT_LT(own->not_after, absl::Now() + absl::Hours(24 * 31));
    struct stat info {};
    ASSERT_EQ(0, stat(certificates.Of(part.name).key.c_str(), &info));
    EXPECT_EQ(info.st_mode & 07777, 0600u);
  }
  // The certificate is reissued by another authority. Both authorities work while ca.pem holds
  // both; later only the new one does.
  const TlsFiles admin = certificates.Of("admin");
  const TlsFiles worker = certificates.Of("worker-0");
  const std::string before = CheckTlsFiles(admin, absl::Now())->fingerprint;
  certificates.MakeCerts("--new_authority --admin");
  EXPECT_NE(CheckTlsFiles(admin, absl::Now())->fingerprint, before);
  EXPECT_TRUE(CheckTlsFiles(worker, absl::Now()).ok());
  certificates.MakeCerts("--forget_old_authority");
  EXPECT_TRUE(CheckTlsFiles(admin, absl::Now()).ok());
  EXPECT_THAT(CheckTlsFiles(worker, absl::Now()).status().message(),
              AllOf(HasSubstr(worker.cert), HasSubstr("is not signed by an authority")));
}

TEST(TlsFilesTest, MakeCertsTakesTheLongestNameOfAJob) {
  const TestCertificates certificates;
  const std::string job(63, 'j');
  const std::string folder = certificates.folder() + "/long";
  certificates.MakeCerts(absl::StrCat("--out=", folder, " --job=", job, " --ps=host --admin"));
  const auto own =
      CheckTlsFiles({folder + "/ca.pem", folder + "/ps-0.pem", folder + "/ps-0.key"}, absl::Now());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->identity, (PeerIdentity{job, PeerRole::kPs, {}}));
}

// A process starts while the certificate is new and the key still old.
TEST(TlsFilesTest, AStartingProcessAwaitsTheEndOfAReplacement) {
  const TestCertificates certificates;
  const TlsFiles files = certificates.Of("worker-0");
  const std::string old_key = TestCertificates::Read(files.key);
  certificates.MakeCerts("--workers=1 --clones=2");
  const std::string new_key = TestCertificates::Read(files.key);
  TestCertificates::Write(files.key, old_key);
  ASSERT_THAT(CheckTlsFiles(files, absl::Now()).status().message(),
              HasSubstr("is not the key of the certificate"));
  std::thread replaces([&] {
    absl::SleepFor(absl::Milliseconds(300));
    TestCertificates::Write(files.key, new_key);
  });
  TransportSecurity security;
  security.tls = files;
  const auto credentials = TransportCredentials::Create(security, {PeerRole::kWorker});
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  replaces.join();
  // Files that nobody replaces are refused.
  TestCertificates::Write(files.key, old_key);
  EXPECT_THAT(TransportCredentials::Create(security, {PeerRole::kWorker}).status().message(),
              HasSubstr("is not the key of the certificate"));
}

TEST(TlsFilesTest, NamesEveryProblemWithItsFile) {
  const TestCertificates certificates;
  const std::string& folder = certificates.folder();
  const TlsFiles good = certificates.Of("worker-0");
  const std::string pem = TestCertificates::Read(good.cert);
  const std::string key = TestCertificates::Read(good.key);
  const auto written = [&](const std::string& name, const std::string& text) {
    TestCertificates::Write(absl::StrCat(folder, "/", name), text);
    return absl::StrCat(folder, "/", name);
  };
  const auto with_mode = [&](mode_t mode) {
    const std::string path = written(absl::StrCat("mode", mode), key);
    EXPECT_EQ(0, chmod(path.c_str(), mode));
    return path;
  };
  const auto issued = [&](const CertificateSpec& spec) { return certificates.Issue("bad", spec); };
  int code = 0;
  OutputOf(absl::StrCat("openssl pkey -aes128 -passout pass:x -in ", good.key, " -out ", folder,
                        "/encrypted && chmod 600 ", folder, "/encrypted"),
           &code);
  ASSERT_EQ(0, code);

  const struct {
    TlsFiles files;
    absl::StatusCode code;
    const char* words;
  } cases[] = {
      {{"/no/ca", good.cert, good.key}, absl::StatusCode::kNotFound, "TLS authorities /no/ca"},
      {{good.ca, "/no/cert", good.key}, absl::StatusCode::kNotFound, "TLS certificate /no/cert"},
      {{good.ca, good.cert, "/no/key"}, absl::StatusCode::kNotFound, "TLS key /no/key"},
      {{folder, good.cert, good.key}, absl::StatusCode::kInvalidArgument, "is not a regular file"},
      {{written("empty", ""), good.cert, good.key},
       absl::StatusCode::kInvalidArgument,
       "no certificate in PEM form"},
      {{good.ca, written("half", pem.substr(0, pem.size() / 2)), good.key},
       absl::StatusCode::kInvalidArgument,
       "damaged"},
      {{good.ca, written("text", "hello"), good.key},
       absl::StatusCode::kInvalidArgument,
       "no certificate in PEM form"},
      {{good.ca, good.key, good.key},
       absl::StatusCode::kInvalidArgument,
       "no certificate in PEM form"},
      {{good.ca, good.cert, good.cert}, absl::StatusCode::kPermissionDenied, "chmod 600"},
      {{good.ca, good.cert, written("nokey", pem)},
       absl::StatusCode::kInvalidArgument,
       "no private key"},
      {{good.ca, good.cert, written("halfkey", key.substr(0, key.size() / 2))},
       absl::StatusCode::kInvalidArgument,
       "no private key"},
      {{good.ca, good.cert, absl::StrCat(folder, "/encrypted")},
       absl::StatusCode::kInvalidArgument,
       "is encrypted"},
      {{good.ca, good.cert, certificates.Of("admin").key},
       absl::StatusCode::kInvalidArgument,
       "is not the key of the certificate"},
      {{good.ca, good.cert, with_mode(0640)}, absl::StatusCode::kPermissionDenied, "mode 0640"},
      {{good.ca, good.cert, with_mode(0604)}, absl::StatusCode::kPermissionDenied, "mode 0604"},
      {{good.ca, good.cert, written("large", std::string((1 << 20) + 1, 'x'))},
       absl::StatusCode::kInvalidArgument,
       "larger than 1 MiB"},
  };
  for (const auto& c : cases) {
    const absl::Status status = CheckTlsFiles(c.files, absl::Now()).status();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(status.message(), HasSubstr(c.words));
    EXPECT_TRUE(absl::StrContains(status.message(), "TLS ")) << status;
  }

  const absl::Time now = absl::Now();
  const struct {
    CertificateSpec spec;
    const char* words;
  } certificate_cases[] = {
      {{.not_before = now - absl::Hours(2), .not_after = now - absl::Hours(1)}, "has expired at"},
      {{.not_before = now + absl::Hours(1), .not_after = now + absl::Hours(2)},
       "is not valid before"},
      {{.signer = Signer::kSelf}, "is not signed by an authority"},
      {{.signer = Signer::kOther}, "is not signed by an authority"},
      {{.names = ""}, "has 0 URIs"},
      {{.names = "DNS:localhost"}, "has 0 URIs"},
      {{.names = "URI:spiffe://pushpull/test/ps,URI:spiffe://pushpull/test/admin"}, "has 2 URIs"},
      {{.names = "URI:spiffe://pushpull/test/root"}, "is not an identity"},
      {{.usage = ""}, "lacks clientAuth"},
      {{.usage = "serverAuth"}, "lacks clientAuth"},
      {{.names = "URI:spiffe://pushpull/test/ps"}, "lacks serverAuth"},
  };
  for (const auto& c : certificate_cases) {
    const TlsFiles files = issued(c.spec);
    const absl::Status status = CheckTlsFiles(files, now).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(c.words), HasSubstr(files.cert)));
  }
}

// A container orchestrator mounts secrets as files that belong to root and are readable by a group.
TEST(TlsFilesTest, AGroupMayReadOnlyAKeyThatBelongsToRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to change the file's owner";
  const TestCertificates certificates;
  TlsFiles files = certificates.Of("worker-0");
  ASSERT_EQ(0, chmod(certificates.folder().c_str(), 0755));
  const auto as_nobody = [&]() {
    EXPECT_EQ(0, setegid(65534));
    EXPECT_EQ(0, seteuid(65534));
    const absl::Status status = CheckTlsFiles(files, absl::Now()).status();
    EXPECT_EQ(0, seteuid(0));
    EXPECT_EQ(0, setegid(0));
    return status;
  };
  ASSERT_EQ(0, chown(files.key.c_str(), 0, 65534));
  ASSERT_EQ(0, chmod(files.key.c_str(), 0440));
  EXPECT_TRUE(as_nobody().ok()) << as_nobody();
  ASSERT_EQ(0, chmod(files.key.c_str(), 0444));
  EXPECT_THAT(as_nobody().message(), HasSubstr("mode 0444"));
  ASSERT_EQ(0, chown(files.key.c_str(), 65534, 65534));
  ASSERT_EQ(0, chmod(files.key.c_str(), 0440));
  EXPECT_THAT(as_nobody().message(), HasSubstr("mode 0440"));
}

TEST(TlsFilesTest, ProgramsNeedACertificateForTheirRoleAndIds) {
  const TestCertificates certificates;
  TransportSecurity security;
  security.tls = certificates.Of("worker-0");
  const absl::Status wrong = TransportCredentials::Create(security, {PeerRole::kPs}).status();
  EXPECT_THAT(wrong.message(), AllOf(HasSubstr("spiffe://pushpull/test/worker/0-1"),
                                     HasSubstr("needs one of role ps")));
  const auto credentials = TransportCredentials::Create(security, {PeerRole::kWorker});
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_TRUE(CheckOwnWorkerIds(**credentials, {0, 1}).ok());
  EXPECT_THAT(CheckOwnWorkerIds(**credentials, {1, 2}).message(),
              AllOf(HasSubstr("worker/0-1"), HasSubstr("1 to 2")));
  const auto plaintext = TransportCredentials::Create({}, {PeerRole::kWorker});
  ASSERT_TRUE(plaintext.ok());
  EXPECT_FALSE((*plaintext)->encrypted());
  EXPECT_TRUE(CheckOwnWorkerIds(**plaintext, {7, 9}).ok());
}

TEST(TlsFilesReportTest, ReportsEachChangeOnce) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  const auto certificate = [&](const std::string& fingerprint, absl::Duration left) {
    return OwnCertificate{{"test", PeerRole::kPs, {}}, start, start + left, fingerprint, {}};
  };
  const OwnCertificate first = certificate("a", absl::Hours(100));
  TlsFilesReport report({"/ca", "/certificate", "/k"}, first);
  EXPECT_EQ(report.Look(first, start).text, "");
  const absl::Status bad = absl::InvalidArgumentError("TLS key /k: is not the key");
  EXPECT_TRUE(report.Look(bad, start).warning);
  EXPECT_EQ(report.Look(bad, start).text, "");
  EXPECT_EQ(report.Look(bad, start + absl::Hours(23)).text, "");
  EXPECT_EQ(report.Look(bad, start + absl::Hours(25)).text,
            "new connections will fail: TLS key /k: is not the key; replace the TLS files");
  EXPECT_THAT(report.Look(first, start).text, HasSubstr("replaced"));
  EXPECT_EQ(report.Look(first, start).text, "");
  const auto line = report.Look(first, start + absl::Hours(91));
  EXPECT_THAT(line.text, HasSubstr("TLS certificate /certificate expires at"));
  EXPECT_TRUE(line.warning);
  EXPECT_EQ(report.Look(first, start + absl::Hours(92)).text, "");
  const auto replaced = report.Look(certificate("b", absl::Hours(200)), start + absl::Hours(93));
  EXPECT_THAT(replaced.text, HasSubstr("replaced: spiffe://pushpull/test/ps"));
  EXPECT_FALSE(replaced.warning);
  OwnCertificate stranger = certificate("c", absl::Hours(200));
  stranger.identity.job = "other";
  EXPECT_THAT(report.Look(stranger, start + absl::Hours(94)).text, HasSubstr("before: spiffe"));
}

TEST(TlsFilesReportTest, RepeatsADailyWarningOfTheExpiryAndThenOfTheExpiredCertificate) {
  const TestCertificates certificates;
  // The authority is valid from now on, so all times lie in the future.
  const absl::Time end = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now())) + absl::Hours(99);
  const TlsFiles files =
      certificates.Issue("month", {.not_before = end - absl::Hours(30 * 24), .not_after = end});
  const auto own = CheckTlsFiles(files, end - absl::Hours(1));
  ASSERT_TRUE(own.ok()) << own.status();
  TlsFilesReport report(files, *own);
  int soon = 0;
  int expired = 0;
  const absl::Time start = end - absl::Hours(80) + absl::Minutes(30);
  for (absl::Time now = start; now < end + absl::Hours(48); now += absl::Hours(1)) {
    const std::string text = report.Look(CheckTlsFiles(files, now), now).text;
    soon += absl::StrContains(text, " expires at ");
    expired += absl::StrContains(text, " has expired at ");
  }
  EXPECT_EQ(soon, 3);     // at 71.5, 47.5 and 23.5 hours before the end
  EXPECT_EQ(expired, 2);  // at 0.5 and 24.5 hours after it
}

TEST(TlsFilesReportTest, WarnsBeforeTheAuthorityExpires) {
  const TestCertificates certificates;
  const absl::Time now = absl::Now();
  // The authority is valid for ten years.
  const absl::Duration year = absl::Hours(365 * 24);
  const TlsFiles files = certificates.Issue("long", {.not_after = now + 20 * year});
  const auto own = CheckTlsFiles(files, now);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE(own->first_to_expire.has_value());
  EXPECT_LT(own->first_to_expire->not_after, now + 11 * year);
  TlsFilesReport report(files, *own);
  EXPECT_EQ(report.Look(own, now).text, "");
  EXPECT_EQ(report.Look(own, now + 8 * year).text, "");
  const auto line = report.Look(own, now + 9 * year + year / 2);
  EXPECT_THAT(line.text,
              AllOf(HasSubstr(files.cert + " is signed by "), HasSubstr("CN="),
                    HasSubstr(", whose certificate expires at "), HasSubstr("a new authority")));
  EXPECT_TRUE(line.warning);
  EXPECT_THAT(CheckTlsFiles(files, now + 12 * year).status().message(),
              AllOf(HasSubstr("is signed by "), HasSubstr(", whose certificate has expired at ")));
  // Certificates that expire before their authority say nothing of it.
  EXPECT_FALSE(CheckTlsFiles(certificates.Of("ps-0"), now)->first_to_expire.has_value());
}

TEST(TlsFilesReportTest, SaysThatSystemdCopiesTheFilesAtTheStart) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  const OwnCertificate own{{"test", PeerRole::kPs, {}}, start, start + absl::Hours(100), "a", {}};
  const std::string folder = "/run/credentials/ps_server@0.service/";
  TlsFilesReport report({folder + "ca.pem", folder + "tls.pem", folder + "tls.key"}, own);
  EXPECT_THAT(report.Look(own, start + absl::Hours(95)).text,
              AllOf(HasSubstr(folder + "tls.pem"), HasSubstr("systemctl try-restart")));
}

}  // namespace
}  // namespace pushpull
