// The connections of one server: how many there are and whose, and what each has sent that no
// message has come of. Cuts those that break the limits.
//
// gRPC owns the sockets. The table has a duplicate of each descriptor: so it can shut a connection
// down without a race for its number, and learns of its end by EPOLLHUP (gRPC shuts a socket down
// before it closes it).
#ifndef PUSHPULL_COMMON_RPC_CONNECTION_TABLE_H_
#define PUSHPULL_COMMON_RPC_CONNECTION_TABLE_H_

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

#include "common/clock.h"
#include "common/log_limiter.h"
#include "common/rpc/opening_bytes.h"
#include "common/rpc/peer_address.h"
#include "common/rpc/server_limits.h"

namespace pushpull {

// What the calls of one connection say about it. Thread-safe.
class ConnectionAccount {
 public:
  // A whole message has come. Its frames, and what goes with them, are more bytes than it.
  void NoteReceived(size_t message_bytes) {
    credit_bytes_.fetch_add(message_bytes + message_bytes / 64 + 512, std::memory_order_relaxed);
    messages_.fetch_add(1, std::memory_order_relaxed);
  }
  // A chunk was sent: the peer answers with window updates.
  void NoteSent() { credit_bytes_.fetch_add(2048, std::memory_order_relaxed); }
  // A push has begun, or ended.
  void NotePush(int change) { pushes_.fetch_add(change, std::memory_order_relaxed); }
  // The peer has taken a call back.
  void NoteCancelled() { cancelled_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class ConnectionTable;
  std::atomic<uint64_t> credit_bytes_{0};
  std::atomic<uint64_t> messages_{0};
  std::atomic<int64_t> pushes_{0};  // under way
  std::atomic<int64_t> cancelled_{0};
};

// Thread-safe.
class ConnectionTable {
 public:
  // clock must outlive the table.
  ConnectionTable(const ServerLimits& limits, Opening opening, const Clock* clock);
  ~ConnectionTable();
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // Counts an accepted socket's connection. Returns the table's duplicate of its descriptor; -1:
  // there are too many connections (logged now and then), or no descriptor is left.
  int Admit(int socket, const PeerAddress& peer);
  // Now gRPC reads from it. Until then it is only counted.
  void NoteHandedOver(int fd);
  // EPOLLHUP: the socket is closed at both ends. Closes `fd`. Bars its host if it has sent much and
  // no whole message, so that its like do not follow each other.
  void Remove(int fd);
  // One from `host` broke a limit just now: others from there are to wait.
  bool IsBarred(absl::string_view host) const;
  // The account of the connection that grpc::ServerContext::peer() names; never null. One of a
  // unix socket, whose bytes nobody counts, is nobody's.
  std::shared_ptr<ConnectionAccount> Find(absl::string_view grpc_peer) const;

  // Cuts connections. To be called fifty times a second: gRPC can spend a core on one connection.
  void Sweep();

  int size() const;
  // Bytes that came and are no messages yet, over all connections, as of the last Sweep.
  int64_t undelivered_bytes() const;

 private:
  struct Entry {
    PeerAddress peer;
    std::shared_ptr<ConnectionAccount> account;
    absl::Duration admitted;
    bool handed_over = false;
    bool cut = false;
    // As of the last Sweep.
    uint64_t messages = 0;
    absl::Duration last_message;
    int64_t forgiven_bytes = 0;  // never to be counted again (may be negative)
    int64_t undelivered_bytes = 0;
    bool over_window = false;  // more than its messages and pushes explain
    bool small_buffer = false;
    int64_t cancelled = 0;
    double cancelled_level = 0.0;
  };

  struct Host {
    Host();
    int live = 0;
    LogLimiter room;
  };

  struct Bar {
    absl::Duration until;
    absl::Duration length;
  };

  // Why the connection is to be cut; empty: it is not.
  std::string Examine(int fd, absl::Duration now, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It has sent more than a greeting and no message, and goes.
  bool WasUseless(int fd, const Entry& entry) const;
  void CutLargest(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cut(int fd, Entry* entry, absl::Duration now, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BarHostOf(const Entry& entry, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For breaking a limit.
  void CutAndBar(int fd, Entry* entry, absl::Duration now, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The entry counts no more; its descriptor is closed by Remove.
  void Forget(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cuts the oldest connection without a request, of `host` or (empty) of anybody. Looks for it as
  // often as `pace` allows.
  bool MakeRoom(absl::string_view host, LogLimiter* pace, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServerLimits limits_;
  const int max_greeting_bytes_;
  const Clock* const clock_;
  const std::shared_ptr<ConnectionAccount> nobody_ = std::make_shared<ConnectionAccount>();

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<int, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by descriptor
  absl::flat_hash_map<std::string, std::shared_ptr<ConnectionAccount>> accounts_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Host> hosts_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Bar> bars_ ABSL_GUARDED_BY(mutex_);  // by host
  int live_ ABSL_GUARDED_BY(mutex_) = 0;                                // those that are not cut
  absl::Duration last_sweep_ ABSL_GUARDED_BY(mutex_);
  int64_t undelivered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  LogLimiter refusals_ ABSL_GUARDED_BY(mutex_);
  LogLimiter cuts_ ABSL_GUARDED_BY(mutex_);
  LogLimiter room_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CONNECTION_TABLE_H_
