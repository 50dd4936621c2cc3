// Tested by tests/ps_server/transport/listen_test.cc.
#include "ps_server/transport/health_server.h"

#include <grpc/support/time.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/grpc/channel_options.h"
#include "ps_server/transport/listen.h"

namespace pushpull {
namespace {

class HealthServerImpl final : public HealthServer {
 public:
  explicit HealthServerImpl(const TransportOptions& options)
      : connections_(options.limits, ConnectionPreface::kHttp2, &clock_),
        watch_(options.limits, &clock_) {}
  ~HealthServerImpl() override {
    if (listening_.gate != nullptr) listening_.gate->Stop();
    if (listening_.server != nullptr) listening_.server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
    if (queue_ == nullptr) return;
    queue_->Shutdown();
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
    }
  }

  absl::Status Start(const std::string& address, const TransportOptions& options) {
    grpc::ServerBuilder builder;
    ConfigureServer(options, &builder);
    queue_ = builder.AddCompletionQueue();
    PP_ASSIGN_OR_RETURN(listening_, StartListening(address, nullptr, options.limits, &builder,
                                                   &connections_, &watch_));
    return absl::OkStatus();
  }

  const std::string& address() const override { return listening_.address; }
  void SetServing(bool serving) override {
    listening_.server->GetHealthCheckService()->SetServingStatus(kHealthServiceName, serving);
  }

 private:
  SteadyClock clock_;
  ConnectionTable connections_;
  CallWatch watch_;
  // gRPC refuses to start a server that has neither a registered service nor a completion queue.
  // Nothing uses this queue.
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  ListeningServer listening_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> StartHealthServer(const std::string& address) {
  TransportOptions options;
  options.max_message_bytes = 4096;
  options.read_chunk_bytes = 4096;
  options.memory_quota_bytes = size_t{4} << 20;
  options.limits.max_connections = 64;
  options.limits.max_connections_per_peer = 32;
  options.limits.max_undelivered_bytes = 256 * 1024;
  options.limits.max_total_undelivered_bytes = 2 << 20;
  auto server = std::make_unique<HealthServerImpl>(options);
  PP_RETURN_IF_ERROR(server->Start(address, options));
  return server;
}

}  // namespace pushpull
