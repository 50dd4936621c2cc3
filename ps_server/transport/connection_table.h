// The connections of one server. The table counts them per host, tracks how many bytes each has
// sent that have not become whole messages ("undelivered bytes"), and cuts those that break the
// limits of ServerLimits. README.md follows an honest clone and an attacker through it.
//
// gRPC owns the sockets. The table holds a duplicate of each descriptor, for two reasons: it can
// shut a connection down although gRPC may close its descriptor, and the number be reused, at any
// time; and the gate's epoll set reports EPOLLHUP on the duplicate when the connection ends,
// because gRPC shuts a socket down before closing it.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_TABLE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "common/wire/grpc/server_limits.h"
#include "ps_server/transport/connection_preface.h"
#include "ps_server/transport/peer_address.h"

namespace pushpull {

// Counts what the calls on one connection have received and done, as they report it. Thread-safe.
class ConnectionAccount {
 public:
  // A whole message has arrived. The credit exceeds its size because frame headers and metadata
  // came with it.
  void NoteReceived(size_t message_bytes) {
    credit_bytes_.fetch_add(message_bytes + message_bytes / 64 + 512, std::memory_order_relaxed);
    messages_.fetch_add(1, std::memory_order_relaxed);
  }
  // A chunk was sent. The peer will answer with window updates, which are credited in advance.
  void NoteSent() { credit_bytes_.fetch_add(2048, std::memory_order_relaxed); }
  // A push has begun (+1) or ended (-1).
  void NotePush(int change) { pushes_.fetch_add(change, std::memory_order_relaxed); }
  // The peer has cancelled a call.
  void NoteCancelled() { cancelled_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class ConnectionTable;
  std::atomic<uint64_t> credit_bytes_{0};  // bytes from the peer that are accounted for
  std::atomic<uint64_t> messages_{0};
  std::atomic<int64_t> pushes_{0};  // in progress
  std::atomic<int64_t> cancelled_{0};
};

// Thread-safe.
class ConnectionTable {
 public:
  // clock must outlive the table. preface: the connection preface that peers have to send.
  ConnectionTable(const ServerLimits& limits, ConnectionPreface preface, const Clock* clock);
  ~ConnectionTable();
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // Adds the connection of an accepted socket. Returns the table's duplicate of the descriptor,
  // which names the connection from then on. If the host or the server has too many connections,
  // cuts an old one without any request to make room. Returns -1 if there is none (logged at a
  // limited rate) or if the process has no descriptor left.
  int Admit(int socket, const PeerAddress& peer);
  // gRPC reads from the connection from now on. Before this call Sweep does not examine it.
  void NoteHandedOver(int fd);
  // Forgets the connection and closes `fd`. To be called when epoll reports EPOLLHUP for `fd` (the
  // socket is shut down in both directions), or when the connection was closed without reaching
  // gRPC. Blocks the host for a moment if the connection sent a lot of data but never a complete
  // message; otherwise it could reconnect and repeat.
  void Remove(int fd);
  // Returns whether `host` is blocked: one of its connections broke a limit recently, and new ones
  // have to wait.
  bool IsBlocked(absl::string_view host) const;
  // Returns the account of the connection that grpc::ServerContext::peer() names; never null. For
  // unix sockets, whose bytes are not counted, and for unknown peers it is an account that nobody
  // reads.
  std::shared_ptr<ConnectionAccount> Find(absl::string_view grpc_peer) const;

  // Cuts the connections that break a limit. To be called fifty times a second: until it is cut, a
  // single connection can occupy a whole core in gRPC.
  void Sweep();

  // The number of connections that were neither removed nor cut.
  int size() const;
  // The undelivered bytes of all connections together, as of the last Sweep.
  int64_t undelivered_bytes() const;

 private:
  struct Entry {
    PeerAddress peer;
    std::shared_ptr<ConnectionAccount> account;
    absl::Duration admitted;
    bool handed_over = false;
    bool cut = false;
    // The following fields are as of the last Sweep.
    uint64_t messages = 0;
    absl::Duration last_message;
    // Part of the bytes read, besides the credit, that is not counted as undelivered: grows with
    // time, shrinks when messages were credited with more bytes than they had. May be negative.
    double forgiven_bytes = 0.0;
    int64_t undelivered_bytes = 0;
    bool over_limit = false;    // more was undelivered than its pushes allow
    bool small_buffer = false;  // the kernel may not enlarge its receive buffer
    int64_t cancelled = 0;
    double cancelled_level = 0.0;  // cancelled calls in the leaky bucket
  };

  struct Host {
    Host();
    int live = 0;     // connections that are not cut
    LogLimiter room;  // limits calls of MakeRoom for this host
  };

  // How long a host is blocked.
  struct Block {
    absl::Duration until;  // steady time
    absl::Duration length;
  };

  // Updates the entry and returns why the connection has to be cut, or an empty string.
  std::string Examine(int fd, absl::Duration now, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the connection, which has ended, sent more than a greeting but no message.
  bool WasUseless(int fd, const Entry& entry) const;
  // Cuts the connections with the most undelivered bytes until the total is within its limit.
  void CutLargest(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cut(int fd, Entry* entry, absl::Duration now, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BlockHostOf(const Entry& entry, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cuts a connection that broke a limit and blocks its host.
  void CutAndBlock(int fd, Entry* entry, absl::Duration now, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stops counting the entry. Its descriptor stays open until Remove.
  void Forget(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cuts the oldest TCP connection without any request: one of `host`, or of any host if `host` is
  // empty. Returns false if there is none or if `limiter` does not allow another search now.
  bool MakeRoom(absl::string_view host, LogLimiter* limiter, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServerLimits limits_;
  const int max_greeting_bytes_;
  const Clock* const clock_;
  // For connections without an account in accounts_.
  const std::shared_ptr<ConnectionAccount> nobody_ = std::make_shared<ConnectionAccount>();

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by descriptor
  absl::flat_hash_map<std::string, std::shared_ptr<ConnectionAccount>> accounts_
      ABSL_GUARDED_BY(mutex_);  // by PeerAddress::key
  absl::flat_hash_map<std::string, Host> hosts_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Block> blocks_ ABSL_GUARDED_BY(mutex_);  // by host
  int live_ ABSL_GUARDED_BY(mutex_) = 0;  // connections that are not cut
  absl::Duration last_sweep_ ABSL_GUARDED_BY(mutex_);
  int64_t undelivered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  LogLimiter refusals_ ABSL_GUARDED_BY(mutex_);
  LogLimiter cuts_ ABSL_GUARDED_BY(mutex_);
  LogLimiter room_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_TABLE_H_
