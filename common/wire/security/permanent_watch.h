// Keeps gRPC's certificate provider from losing the certificates of a client.
//
// Each connection attempt of a channel watches the provider, and stops when the connection has
// ended. gRPC 1.51 updates the number of watchers under one lock and tells the provider of the
// first and of the last watcher under another. If the last one leaves while a new one comes, the
// provider may hear of the two in the wrong order. It then believes that nobody watches, and the
// new connection gets no certificates, ever: each attempt to connect fails with "Failed to create
// security handshaker". A process that watches all the time has neither a first nor a last watcher.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_PERMANENT_WATCH_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_PERMANENT_WATCH_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/server.h>

#include <memory>

namespace pushpull {

// Watches the authorities and the certificate of `provider` from the constructor to the destructor.
// Only a server's port starts a watch at once, so this class has a server that listens nowhere. It
// has no thread.
class PermanentWatch {
 public:
  explicit PermanentWatch(
      const std::shared_ptr<grpc::experimental::CertificateProviderInterface>& provider);
  ~PermanentWatch();
  PermanentWatch(const PermanentWatch&) = delete;
  PermanentWatch& operator=(const PermanentWatch&) = delete;

 private:
  // gRPC refuses to start a server that has neither a registered service nor a completion queue.
  // Nothing uses this queue.
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_PERMANENT_WATCH_H_
