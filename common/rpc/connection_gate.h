// Accepts a server's connections, counts them, and hands on those that the limits allow. gRPC's own
// listener would take whatever comes until the process has no descriptor left.
#ifndef PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_
#define PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/rpc/call_watch.h"
#include "common/rpc/connection_table.h"
#include "common/rpc/listening_sockets.h"

namespace pushpull {

// Thread-safe.
class ConnectionGate {
 public:
  // Takes an accepted, non-blocking socket's descriptor over.
  using DeliverFn = std::function<void(int fd)>;

  // table and watch must outlive the gate. UNAVAILABLE: no descriptor for it.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Open(ListeningSockets sockets,
                                                              ConnectionTable* table,
                                                              CallWatch* watch, DeliverFn deliver);
  ~ConnectionGate() { Stop(); }
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Listens no more. Connections that are there stay; nobody counts them any longer.
  void Stop();

 private:
  ConnectionGate(ListeningSockets sockets, ConnectionTable* table, CallWatch* watch,
                 DeliverFn deliver);
  absl::Status Start();
  void Run();
  void Accept(int listener);
  bool Watch(int fd, uint32_t events);

  ListeningSockets sockets_;
  ConnectionTable* const table_;
  CallWatch* const watch_;
  const DeliverFn deliver_;
  int epoll_ = -1;
  int stop_event_ = -1;
  absl::Mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_
