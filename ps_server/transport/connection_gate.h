// Accepts the connections of a server, counts them, and hands those within the limits over to gRPC.
// A TCP connection must also start with a valid connection preface (connection_preface.h); unix
// sockets are exempt because their peers are on this machine. gRPC's listener has no such limits:
// it would accept connections until the process is out of descriptors.
//
// The gate has two threads. gRPC reads and parses a connection's data in the thread that hands the
// connection over, for as long as more data arrives. Therefore one thread only hands over, and
// another one accepts, counts and cuts connections.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_GATE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_GATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "common/base/serial_executor.h"
#include "common/wire/grpc/server_limits.h"
#include "ps_server/transport/call_watch.h"
#include "ps_server/transport/connection_preface.h"
#include "ps_server/transport/connection_table.h"
#include "ps_server/transport/listening_sockets.h"
#include "ps_server/transport/rate_limiter.h"

namespace pushpull {

// Thread-safe.
class ConnectionGate {
 public:
  // Takes ownership of the descriptor of an accepted, non-blocking socket. Called on one thread
  // only; may block for long.
  using DeliverFn = std::function<void(int fd)>;

  // Starts accepting. table and watch must outlive the gate, whose thread sweeps both of them.
  // UNAVAILABLE: the process has no descriptor left for epoll.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Open(ListeningSockets sockets,
                                                              ConnectionPreface preface,
                                                              const ServerLimits& limits,
                                                              ConnectionTable* table,
                                                              CallWatch* watch, DeliverFn deliver);
  ~ConnectionGate() { Stop(); }
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Stops listening and closes the connections that gRPC has not received yet. gRPC's connections
  // stay open, but are no longer counted or cut. Blocks until both threads have ended. Later calls
  // do nothing.
  void Stop();

 private:
  enum class Phase {
    kBeginning,  // the connection preface has not arrived completely
    kWaiting,    // the preface is valid; the rate limiter decides when gRPC gets the connection
    kTarpit,     // it sent too much; it is closed at its deadline
  };
  // A TCP connection that was accepted and not yet handed to gRPC.
  struct Newcomer {
    int fd;
    std::string host;
    absl::Duration deadline;  // steady time
    Phase phase = Phase::kBeginning;
  };

  ConnectionGate(ListeningSockets sockets, ConnectionPreface preface, const ServerLimits& limits,
                 ConnectionTable* table, CallWatch* watch, DeliverFn deliver);
  absl::Status Start();
  void Run();
  // Sleeps for a moment, or until the gate is stopped.
  void Rest();
  void Accept(int listener);
  // Checks the connection preface. To be called when its bytes have arrived or the peer has closed.
  void Examine(int duplicate, Newcomer* newcomer);
  // Hands over the waiting newcomers that the rate limiter allows.
  void DeliverWaiting();
  // `duplicate` is the connection table's descriptor of the socket `fd`, here and below.
  void Deliver(int duplicate, int fd);
  void TurnAway(int duplicate, const Newcomer& newcomer, const std::string& why);
  // Closes a connection that was not handed to gRPC.
  void End(int duplicate, int fd);
  void TurnAwayTheLate();
  // The reason for closing a newcomer that reaches its deadline in this phase.
  std::string WhyLate(Phase phase) const;
  bool Watch(int fd, uint32_t events);

  ListeningSockets sockets_;
  const ConnectionPreface preface_;
  const absl::Duration patience_;  // time that a newcomer has until it is handed over
  const absl::Duration tarpit_;
  ConnectionTable* const table_;
  CallWatch* const watch_;
  const DeliverFn deliver_;
  const SteadyClock clock_;
  int epoll_ = -1;
  int stop_event_ = -1;
  // The following members are used by thread_ only.
  absl::flat_hash_map<int, Newcomer> newcomers_;  // by the connection table's descriptor
  std::vector<int> waiting_;  // keys of newcomers_ in phase kWaiting, in order of arrival
  RateLimiter rate_limiter_;
  LogLimiter turned_away_;
  absl::Mutex delivery_mutex_;
  // Null once Stop has been called.
  std::unique_ptr<SerialExecutor> delivery_ ABSL_GUARDED_BY(delivery_mutex_);
  absl::Mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_GATE_H_
