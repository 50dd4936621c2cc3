#include "ps_server/transport/connection_table.h"

#include <fcntl.h>
#include <linux/socket.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

// A younger connection is not cut for want of a message: its first request may be on the way.
constexpr absl::Duration kGrowingUp = absl::Seconds(1);
// How long after a block has ended its host counts as a first offender again.
constexpr absl::Duration kForgiven = absl::Seconds(30);
constexpr absl::Duration kLogPeriod = absl::Seconds(10);
constexpr int kLogBurst = 5;
// Limits how often MakeRoom searches all connections. In a flood it would otherwise search for
// every connection that is refused.
constexpr int kRoomBurst = 64;
constexpr absl::Duration kRoomPeriod = absl::Milliseconds(10);
// Rate at which bytes outside of messages (pings, window updates, health probes) are not counted as
// undelivered.
constexpr double kForgivenBytesPerSecond = 64.0;
// A connection with no more undelivered bytes is cut neither for a stall nor for the total limit.
constexpr int64_t kSmallBytes = 64 * 1024;

// Bytes that the process has read from the socket; -1 if it is not TCP. Read the credit first: a
// message that is credited after this call would otherwise seem to exceed what was read.
int64_t BytesRead(int fd) {
  int unread = 0;
  if (ioctl(fd, FIONREAD, &unread) != 0) return -1;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return -1;
  return static_cast<int64_t>(info.tcpi_bytes_received) - unread;
}

// Sets whether the kernel may enlarge the socket's receive buffer, up to megabytes, while data is
// read from it. gRPC reads and parses all data in the buffer without a pause in which the
// connection could be cut. Returns false if this cannot be set (Linux before 5.14); the buffer then
// grows.
bool LetReceiveBufferGrow(int fd, bool grow) {
  const int locked = grow ? 0 : SOCK_RCVBUF_LOCK;
  return setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked)) == 0;
}

}  // namespace

ConnectionTable::ConnectionTable(const ServerLimits& limits, ConnectionPreface preface,
                                 const Clock* clock)
    : limits_(limits),
      max_greeting_bytes_(MaxGreetingBytes(preface)),
      clock_(clock),
      last_sweep_(clock->Now()),
      refusals_(kLogBurst, kLogPeriod),
      cuts_(kLogBurst, kLogPeriod),
      room_(kRoomBurst, kRoomPeriod) {}

ConnectionTable::Host::Host() : room(kRoomBurst, kRoomPeriod) {}

ConnectionTable::~ConnectionTable() {
  for (const auto& [fd, entry] : entries_) close(fd);
}

int ConnectionTable::Admit(int socket, const PeerAddress& peer) {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const bool full = live_ >= limits_.max_connections;
  const auto host = hosts_.find(peer.host);
  const bool host_full =
      host != hosts_.end() && host->second.live >= limits_.max_connections_per_peer;
  if ((host_full && !MakeRoom(peer.host, &host->second.room, now)) ||
      (!host_full && full && !MakeRoom("", &room_, now))) {
    if (refusals_.Allow(now)) {
      LOG(WARNING) << "refused a connection from " << peer.host << ": there are "
                   << (host_full ? limits_.max_connections_per_peer : limits_.max_connections)
                   << (host_full ? " from there" : "") << " already" << refusals_.TakeNote();
    }
    return -1;
  }
  const int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return -1;
  Entry& entry = entries_[fd];
  entry.peer = peer;
  entry.account = std::make_shared<ConnectionAccount>();
  entry.admitted = entry.last_message = now;
  if (!peer.key.empty()) {
    accounts_[peer.key] = entry.account;
    entry.small_buffer = LetReceiveBufferGrow(fd, false);
  }
  ++hosts_[peer.host].live;
  ++live_;
  return fd;
}

bool ConnectionTable::MakeRoom(absl::string_view host, LogLimiter* limiter, absl::Duration now) {
  if (!limiter->Allow(now)) return false;
  int victim = -1;
  absl::Duration oldest = now - kGrowingUp;
  for (const auto& [fd, entry] : entries_) {
    if (!host.empty() && entry.peer.host != host) continue;
    if (entry.cut || entry.account->messages_.load(std::memory_order_relaxed) > 0) continue;
    if (entry.peer.key.empty() || entry.admitted >= oldest) continue;
    victim = fd;
    oldest = entry.admitted;
  }
  if (victim < 0) return false;
  Cut(victim, &entries_[victim], now, "it made no request, and others wait");
  return true;
}

void ConnectionTable::Forget(const Entry& entry) {
  const auto account = accounts_.find(entry.peer.key);
  if (account != accounts_.end() && account->second == entry.account) accounts_.erase(account);
  const auto host = hosts_.find(entry.peer.host);
  if (--host->second.live == 0) hosts_.erase(host);
  --live_;
}

void ConnectionTable::NoteHandedOver(int fd) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find(fd);
  if (it != entries_.end()) it->second.handed_over = true;
}

void ConnectionTable::Remove(int fd) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = entries_.find(fd);
    if (it == entries_.end()) return;
    const Entry& entry = it->second;
    if (!entry.cut) {
      if (WasUseless(fd, entry)) BlockHostOf(entry, clock_->Now());
      Forget(entry);
    }
    entries_.erase(it);
  }
  close(fd);
}

bool ConnectionTable::WasUseless(int fd, const Entry& entry) const {
  const double forgiven =
      absl::ToDoubleSeconds(clock_->Now() - entry.admitted) * kForgivenBytesPerSecond;
  return entry.account->messages_.load(std::memory_order_relaxed) == 0 &&
         static_cast<double>(BytesRead(fd)) > max_greeting_bytes_ + forgiven;
}

bool ConnectionTable::IsBlocked(absl::string_view host) const {
  absl::MutexLock lock(&mutex_);
  const auto block = blocks_.find(host);
  return block != blocks_.end() && clock_->Now() < block->second.until;
}

std::shared_ptr<ConnectionAccount> ConnectionTable::Find(absl::string_view grpc_peer) const {
  const std::string key = KeyOfGrpcPeer(grpc_peer);
  absl::MutexLock lock(&mutex_);
  const auto it = accounts_.find(key);
  return it == accounts_.end() ? nobody_ : it->second;
}

void ConnectionTable::Cut(int fd, Entry* entry, absl::Duration now, absl::string_view why) {
  entry->cut = true;
  Forget(*entry);
  // With SO_LINGER 0 the close sends a reset, so a peer that is still sending notices at once and
  // not only when its timers expire.
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  shutdown(fd, SHUT_RDWR);
  if (cuts_.Allow(now)) {
    LOG(WARNING) << "cut a connection from " << entry->peer.host << ": " << why << cuts_.TakeNote();
  }
}

void ConnectionTable::BlockHostOf(const Entry& entry, absl::Duration now) {
  if (entry.peer.key.empty()) return;
  const auto [it, first] = blocks_.try_emplace(entry.peer.host);
  Block& block = it->second;
  block.length = first ? limits_.block_time : std::min(2 * block.length, limits_.max_block_time);
  block.until = now + block.length;
}

void ConnectionTable::CutAndBlock(int fd, Entry* entry, absl::Duration now, absl::string_view why) {
  BlockHostOf(*entry, now);
  Cut(fd, entry, now, why);
}

std::string ConnectionTable::Examine(int fd, absl::Duration now, Entry* entry) {
  const ConnectionAccount& account = *entry->account;
  const double seconds = absl::ToDoubleSeconds(now - last_sweep_);

  const int64_t cancelled = account.cancelled_.load(std::memory_order_relaxed);
  entry->cancelled_level =
      std::max(0.0, entry->cancelled_level - seconds * limits_.max_cancelled_calls_per_second) +
      static_cast<double>(cancelled - std::exchange(entry->cancelled, cancelled));
  if (entry->cancelled_level > limits_.max_cancelled_calls) {
    return absl::StrCat("it cancelled more than ", limits_.max_cancelled_calls, " calls");
  }

  const uint64_t messages = account.messages_.load(std::memory_order_relaxed);
  if (messages != std::exchange(entry->messages, messages)) entry->last_message = now;
  if (messages > 0 && std::exchange(entry->small_buffer, false)) LetReceiveBufferGrow(fd, true);
  const auto credit = static_cast<int64_t>(account.credit_bytes_.load(std::memory_order_relaxed));
  const int64_t read = BytesRead(fd);
  if (read < 0) return "";
  entry->forgiven_bytes += seconds * kForgivenBytesPerSecond;
  const double unexplained = static_cast<double>(read - credit) - entry->forgiven_bytes;
  if (unexplained < 0.0) entry->forgiven_bytes += unexplained;
  const auto undelivered = static_cast<int64_t>(std::max(0.0, unexplained));
  entry->undelivered_bytes = undelivered;
  const int64_t limit =
      std::min(limits_.max_undelivered_bytes, limits_.max_undelivered_without_push_bytes +
                                                  account.pushes_.load(std::memory_order_relaxed) *
                                                      limits_.max_undelivered_per_push_bytes);
  // A connection may be over its limit in one sweep, because a push that has just begun may not be
  // counted yet. A connection without any message gets no second sweep: a first push alone fits
  // into the initial window, which is below the limit.
  const bool again = std::exchange(entry->over_limit, undelivered > limit) || messages == 0;
  if (undelivered > limits_.max_undelivered_bytes || (again && entry->over_limit)) {
    return absl::StrCat("it sent ", undelivered, " bytes without a complete message, allowed are ",
                        limit);
  }
  const absl::Duration silent = now - entry->last_message;
  if (undelivered > kSmallBytes && silent > limits_.stalled_message) {
    return absl::StrCat("its last ", undelivered, " bytes have not completed a message for ",
                        absl::FormatDuration(silent));
  }
  return "";
}

void ConnectionTable::Sweep() {
  const absl::Duration now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  undelivered_bytes_ = 0;
  for (auto& [fd, entry] : entries_) {
    if (entry.cut || !entry.handed_over) continue;
    const std::string why = Examine(fd, now, &entry);
    if (!why.empty()) {
      CutAndBlock(fd, &entry, now, why);
    } else {
      undelivered_bytes_ += entry.undelivered_bytes;
    }
  }
  last_sweep_ = now;
  absl::erase_if(blocks_,
                 [now](const auto& block) { return block.second.until + kForgiven <= now; });
  if (undelivered_bytes_ > limits_.max_total_undelivered_bytes) CutLargest(now);
}

void ConnectionTable::CutLargest(absl::Duration now) {
  std::vector<std::pair<int64_t, int>> stuck;
  for (const auto& [fd, entry] : entries_) {
    const bool small = entry.undelivered_bytes <= kSmallBytes;
    if (entry.cut || small || now - entry.last_message < kGrowingUp) continue;
    stuck.emplace_back(entry.undelivered_bytes, fd);
  }
  std::sort(stuck.rbegin(), stuck.rend());
  for (const auto& [bytes, fd] : stuck) {
    if (undelivered_bytes_ <= limits_.max_total_undelivered_bytes) return;
    undelivered_bytes_ -= bytes;
    CutAndBlock(fd, &entries_[fd], now,
                absl::StrCat("it sent ", bytes,
                             " bytes without a complete message, and all connections hold "
                             "more than ",
                             limits_.max_total_undelivered_bytes));
  }
}

int ConnectionTable::size() const {
  absl::MutexLock lock(&mutex_);
  return live_;
}

int64_t ConnectionTable::undelivered_bytes() const {
  absl::MutexLock lock(&mutex_);
  return undelivered_bytes_;
}

}  // namespace pushpull
