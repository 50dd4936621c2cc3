// Tested by tests/common/wire/security/tls_connection_test.cc.
#include "common/wire/security/transport_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "common/wire/security/access_processor.h"
#include "common/wire/security/certificate.h"
#include "common/wire/security/permanent_watch.h"
#include "common/wire/security/tls_files.h"
#include "common/wire/security/tls_files_monitor.h"

namespace pushpull {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 1;

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// The checks of a peer's certificate that OpenSSL does not make. OpenSSL's checks have passed
// before.
class ConnectionVerifier final : public tls::ExternalCertificateVerifier {
 public:
  enum class Hosts { kChecked, kIgnored };
  // peer: which side of the connection the checked peer is. refusals: limits the log messages of
  // all verifiers of the process.
  ConnectionVerifier(std::string job, TlsSide peer, Hosts hosts,
                     std::shared_ptr<PeerLogLimiter> refusals)
      : job_(std::move(job)), peer_(peer), hosts_(hosts), refusals_(std::move(refusals)) {}
  ~ConnectionVerifier() override = default;

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    const absl::Status status = Check(View(request->peer_cert()), View(request->target_name()));
    if (!status.ok()) {
      if (const std::optional<std::string> note = refusals_->Admit(SteadyClock().Now())) {
        LOG(WARNING) << "refused a " << (peer_ == TlsSide::kServer ? "server" : "client")
                     << "'s certificate: " << status.message() << *note;
      }
      *sync_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(status.message()));
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Check(absl::string_view pem, absl::string_view target) const {
    PP_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, Certificate::AllFromPem(pem));
    const Certificate& certificate = chain[0];
    PP_ASSIGN_OR_RETURN(const PeerIdentity identity, certificate.Identity());
    PP_RETURN_IF_ERROR(certificate.CheckUsage(peer_));
    // OpenSSL does not check the dates again when a session is resumed.
    PP_RETURN_IF_ERROR(certificate.CheckDates(absl::Now()));
    if (identity.job != job_) {
      return absl::PermissionDeniedError(
          absl::StrCat("it belongs to ", PeerIdentityUri(identity), ", expected job ", job_));
    }
    if (peer_ == TlsSide::kClient) return absl::OkStatus();
    if (identity.role != PeerRole::kPs) {
      return absl::PermissionDeniedError(
          absl::StrCat("it belongs to ", PeerIdentityUri(identity), ", expected a ps task"));
    }
    const std::string host = HostOfTarget(target);
    if (hosts_ == Hosts::kIgnored || certificate.IsForHost(host)) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat("it belongs to ", PeerIdentityUri(identity),
                                                    ", but is not for the host \"", host, "\""));
  }

  static std::string HostOfTarget(absl::string_view target) {
    if (absl::StartsWith(target, "[")) {
      return std::string(target.substr(1, target.find(']') - 1));
    }
    const size_t colon = target.find(':');
    const bool one_colon = colon != absl::string_view::npos && colon == target.rfind(':');
    return std::string(one_colon ? target.substr(0, colon) : target);
  }

  const std::string job_;
  const TlsSide peer_;
  const Hosts hosts_;
  const std::shared_ptr<PeerLogLimiter> refusals_;
};

class Plaintext final : public TransportCredentials {
 public:
  const std::optional<PeerIdentity>& identity() const override { return identity_; }
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(const std::string&) const override {
    return grpc::InsecureChannelCredentials();
  }
  std::shared_ptr<grpc::ServerCredentials> ForServer() const override {
    return grpc::InsecureServerCredentials();
  }

 private:
  const std::optional<PeerIdentity> identity_;
};

class MutualTls final : public TransportCredentials {
 public:
  MutualTls(const TlsFiles& files, const OwnCertificate& own)
      : identity_(own.identity),
        provider_(std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.cert,
                                                                        files.ca, kRefreshSeconds)),
        watch_(provider_),
        monitor_(files, own) {}

  const std::optional<PeerIdentity>& identity() const override { return identity_; }

  std::shared_ptr<grpc::ChannelCredentials> ForChannel(const std::string& address) const override {
    const auto hosts = absl::StartsWith(address, kUnixPrefix) ? ConnectionVerifier::Hosts::kIgnored
                                                              : ConnectionVerifier::Hosts::kChecked;
    tls::TlsChannelCredentialsOptions options;
    options.set_verify_server_certs(true);
    Complete(TlsSide::kServer, hosts, &options);
    return tls::TlsCredentials(options);
  }

  std::shared_ptr<grpc::ServerCredentials> ForServer() const override {
    tls::TlsServerCredentialsOptions options(provider_);
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    Complete(TlsSide::kClient, ConnectionVerifier::Hosts::kIgnored, &options);
    std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
    credentials->SetAuthMetadataProcessor(std::make_shared<AccessProcessor>(identity_->job));
    return credentials;
  }

 private:
  void Complete(TlsSide peer, ConnectionVerifier::Hosts hosts,
                tls::TlsCredentialsOptions* options) const {
    options->set_certificate_provider(provider_);
    options->watch_root_certs();
    options->watch_identity_key_cert_pairs();
    // ConnectionVerifier checks the host instead.
    options->set_check_call_host(false);
    options->set_certificate_verifier(tls::ExternalCertificateVerifier::Create<ConnectionVerifier>(
        identity_->job, peer, hosts, refusals_));
  }

  const std::optional<PeerIdentity> identity_;
  const std::shared_ptr<tls::FileWatcherCertificateProvider> provider_;
  const PermanentWatch watch_;
  const std::shared_ptr<PeerLogLimiter> refusals_ = std::make_shared<PeerLogLimiter>();
  const TlsFilesMonitor monitor_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TransportCredentials>> TransportCredentials::Create(
    const TransportSecurity& security, const std::vector<PeerRole>& roles) {
  InitGrpcRuntime();
  if (!security.tls.has_value()) return std::make_shared<const Plaintext>();
  const TlsFiles& files = *security.tls;
  PP_ASSIGN_OR_RETURN(const OwnCertificate own, AwaitTlsFiles(files));
  const PeerRole role = own.identity.role;
  if (!roles.empty() && std::find(roles.begin(), roles.end(), role) == roles.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS certificate ", files.cert, ": it belongs to ",
                     PeerIdentityUri(own.identity), ", this program needs one of role ",
                     absl::StrJoin(roles, " or ", [](std::string* out, PeerRole wanted) {
                       absl::StrAppend(out, PeerRoleName(wanted));
                     })));
  }
  return std::make_shared<const MutualTls>(files, own);
}

absl::Status CheckOwnWorkerIds(const TransportCredentials& credentials, WorkerIdRange ids) {
  const std::optional<PeerIdentity>& identity = credentials.identity();
  if (!identity.has_value() || identity->role != PeerRole::kWorker) return absl::OkStatus();
  if (identity->worker_ids.Contains(ids.first) && identity->worker_ids.Contains(ids.last)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the TLS certificate belongs to ", PeerIdentityUri(*identity),
                   ", but this worker's clones have the worker_ids ", ids.first, " to ", ids.last,
                   " (--worker_index * --num_clones and on): use the certificate of this "
                   "--worker_index, made with --clones=--num_clones"));
}

}  // namespace pushpull
