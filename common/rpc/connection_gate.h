// Accepts a server's connections, counts them, and hands on those that the limits allow and that
// begin as the protocol does (over TCP; a unix socket's peers are this machine's). gRPC's own
// listener would take whatever comes until the process has no descriptor left.
//
// Two threads: gRPC reads and parses what a connection sends in the thread that hands it over, as
// long as there is more of it. The thread that counts and cuts must never be that one.
#ifndef PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_
#define PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_

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

#include "common/clock.h"
#include "common/log_limiter.h"
#include "common/rpc/arrival_pace.h"
#include "common/rpc/call_watch.h"
#include "common/rpc/connection_table.h"
#include "common/rpc/listening_sockets.h"
#include "common/rpc/opening_bytes.h"
#include "common/rpc/server_limits.h"
#include "common/serial_executor.h"

namespace pushpull {

// Thread-safe.
class ConnectionGate {
 public:
  // Takes an accepted, non-blocking socket's descriptor over. Called by one thread; may take long.
  using DeliverFn = std::function<void(int fd)>;

  // table and watch must outlive the gate. UNAVAILABLE: no descriptor for it.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Open(ListeningSockets sockets,
                                                              Opening opening,
                                                              const ServerLimits& limits,
                                                              ConnectionTable* table,
                                                              CallWatch* watch, DeliverFn deliver);
  ~ConnectionGate() { Stop(); }
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Listens no more. Connections that are there stay; when it returns nobody counts them any
  // longer.
  void Stop();

 private:
  enum class Phase {
    kBeginning,  // not yet known to speak the protocol
    kWaiting,    // it has begun well, its turn comes
    kTarpit,     // it has sent too much, and only its deadline comes
  };
  // Accepted, and not yet gRPC's. By the table's descriptor.
  struct Newcomer {
    int fd;
    std::string host;
    absl::Duration deadline;
    Phase phase = Phase::kBeginning;
  };

  ConnectionGate(ListeningSockets sockets, Opening opening, const ServerLimits& limits,
                 ConnectionTable* table, CallWatch* watch, DeliverFn deliver);
  absl::Status Start();
  void Run();
  // Until it is to stop, or for a moment.
  void Rest();
  void Accept(int listener);
  // The newcomer has sent its first bytes, or has gone.
  void Examine(int duplicate, Newcomer* newcomer);
  // Hands on those that wait and whose turn it is.
  void DeliverWaiting();
  void Deliver(int duplicate, int fd);
  void TurnAway(int duplicate, const Newcomer& newcomer, const std::string& why);
  // Of a connection that gRPC has not got.
  void End(int duplicate, int fd);
  void TurnAwayTheLate();
  // What a newcomer has done wrong that is still there at its deadline.
  std::string WhyLate(Phase phase) const;
  bool Watch(int fd, uint32_t events);

  ListeningSockets sockets_;
  const Opening opening_;
  const absl::Duration patience_;  // with newcomers
  const absl::Duration tarpit_;
  ConnectionTable* const table_;
  CallWatch* const watch_;
  const DeliverFn deliver_;
  const SteadyClock clock_;
  int epoll_ = -1;
  int stop_event_ = -1;
  // The thread's own.
  absl::flat_hash_map<int, Newcomer> newcomers_;
  std::vector<int> waiting_;  // of them, first come first served
  ArrivalPace pace_;
  LogLimiter turned_away_;
  absl::Mutex delivery_mutex_;
  // Null: the gate stops.
  std::unique_ptr<SerialExecutor> delivery_ ABSL_GUARDED_BY(delivery_mutex_);
  absl::Mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CONNECTION_GATE_H_
