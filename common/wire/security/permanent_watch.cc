// Tested by tests/common/wire/security/tls_connection_test.cc.
#include "common/wire/security/permanent_watch.h"

#include <grpc/support/time.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_builder.h>

#include "glog/logging.h"

namespace pushpull {

PermanentWatch::PermanentWatch(
    const std::shared_ptr<grpc::experimental::CertificateProviderInterface>& provider) {
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  grpc::ServerBuilder builder;
  queue_ = builder.AddCompletionQueue();
  // gRPC would add its health service, and with it threads.
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  // A port that accepts only connections that this process hands to it, which it never does.
  builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::experimental::TlsServerCredentials(options));
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr) << "gRPC cannot start a server without an address";
}

PermanentWatch::~PermanentWatch() {
  server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  queue_->Shutdown();
  void* tag;
  bool ok;
  while (queue_->Next(&tag, &ok)) {
  }
}

}  // namespace pushpull
