#include "ps_server/transport/connection_gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kPeriodMilliseconds = 20;
// Pause after every wake-up, so that all events of the pause cost one more wake-up together.
// Without it, the thread would spend most of its time waking up during a flood of connections.
constexpr int kRestMilliseconds = 10;
// Connections accepted from one listener before other events are handled.
constexpr int kAcceptsAtOnce = 64;
// A connection ends when the peer has not acknowledged data for this long.
constexpr int kUserTimeoutMilliseconds = 20000;
constexpr int kLogBurst = 5;
constexpr absl::Duration kLogPeriod = absl::Seconds(10);

// Closes a connection with a reset, so that no TIME_WAIT state remains on this side.
void Refuse(int fd) {
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd);
}

// Makes epoll report the socket as readable only when at least `bytes` are there.
void SetLowWater(int fd, int bytes) {
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

int UnreadBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : 0;
}

const char* Expected(ConnectionPreface preface) {
  return preface == ConnectionPreface::kTls
             ? "it does not start with a TLS handshake, which this server requires"
             : "it does not start with the preface of HTTP/2 without TLS";
}

}  // namespace

ConnectionGate::ConnectionGate(ListeningSockets sockets, ConnectionPreface preface,
                               const ServerLimits& limits, ConnectionTable* table, CallWatch* watch,
                               DeliverFn deliver)
    : sockets_(std::move(sockets)),
      preface_(preface),
      patience_(limits.handshake),
      tarpit_(limits.tarpit),
      table_(table),
      watch_(watch),
      deliver_(std::move(deliver)),
      rate_limiter_(limits.max_connections_per_peer, limits.connections_per_second),
      turned_away_(kLogBurst, kLogPeriod),
      delivery_(std::make_unique<SerialExecutor>()) {}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(
    ListeningSockets sockets, ConnectionPreface preface, const ServerLimits& limits,
    ConnectionTable* table, CallWatch* watch, DeliverFn deliver) {
  std::unique_ptr<ConnectionGate> gate(
      new ConnectionGate(std::move(sockets), preface, limits, table, watch, std::move(deliver)));
  PP_RETURN_IF_ERROR(gate->Start());
  return gate;
}

absl::Status ConnectionGate::Start() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool watched = epoll_ >= 0 && stop_event_ >= 0 && Watch(stop_event_, EPOLLIN);
  for (const int fd : sockets_.descriptors()) watched = watched && Watch(fd, EPOLLIN);
  if (!watched) {
    return absl::UnavailableError(
        absl::StrCat("cannot wait for connections to ", sockets_.address(), ": ", strerror(errno)));
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void ConnectionGate::Stop() {
  absl::MutexLock lock(&stop_mutex_);
  std::unique_ptr<SerialExecutor> delivery;
  {
    absl::MutexLock delivery_lock(&delivery_mutex_);
    delivery.swap(delivery_);
  }
  // The delivery thread has to end first: if a connection keeps it busy, only a sweep of the gate's
  // thread can cut that connection.
  delivery.reset();
  if (thread_.joinable()) {
    const uint64_t one = 1;
    CHECK_EQ(write(stop_event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }
  sockets_.Close();
  for (const auto& [duplicate, newcomer] : newcomers_) End(duplicate, newcomer.fd);
  newcomers_.clear();
  for (int* fd : {&epoll_, &stop_event_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

bool ConnectionGate::Watch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0);
}

void ConnectionGate::Run() {
  const auto& listeners = sockets_.descriptors();
  absl::Duration next_sweep = clock_.Now();
  std::array<epoll_event, 256> events;
  for (;;) {
    const auto until_sweep = std::max(next_sweep - clock_.Now(), absl::ZeroDuration());
    auto patience = static_cast<int>(absl::ToInt64Milliseconds(until_sweep)) + 1;
    if (!waiting_.empty()) patience = std::min(patience, kRestMilliseconds);
    const int count = epoll_wait(epoll_, events.data(), events.size(), patience);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_event_) return;
      if (std::find(listeners.begin(), listeners.end(), fd) != listeners.end()) {
        Accept(fd);
        continue;
      }
      if (const auto newcomer = newcomers_.find(fd); newcomer != newcomers_.end()) {
        Examine(fd, &newcomer->second);
        continue;
      }
      // EPOLLHUP: gRPC has shut the socket down. It may still hold its descriptor, so closing the
      // duplicate would not end the epoll registration.
      epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
      table_->Remove(fd);
    }
    DeliverWaiting();
    if (clock_.Now() >= next_sweep) {
      next_sweep = clock_.Now() + absl::Milliseconds(kPeriodMilliseconds);
      TurnAwayTheLate();
      rate_limiter_.Forget(clock_.Now());
      table_->Sweep();
      watch_->Sweep();
    }
    if (count > 0) Rest();
  }
}

void ConnectionGate::Rest() {
  pollfd stop{stop_event_, POLLIN, 0};
  poll(&stop, 1, kRestMilliseconds);
}

void ConnectionGate::Accept(int listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    const int fd =
        accept4(listener, reinterpret_cast<sockaddr*>(&name), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    // The backlog is empty, or the process has no descriptor or memory left. In the latter case the
    // connection stays in the backlog, and epoll reports it again.
    if (fd < 0) return;
    const PeerAddress peer = PeerAddressOf(fd, name);
    const int duplicate = table_->Admit(fd, peer);
    if (duplicate < 0) {
      Refuse(fd);
      continue;
    }
    const bool is_tcp = name.ss_family != AF_UNIX;
    if (is_tcp) SetLowWater(fd, PrefaceSize(preface_));
    // epoll reports EPOLLHUP even if it is not asked for.
    if (!Watch(duplicate, is_tcp ? EPOLLIN | EPOLLRDHUP : 0)) {
      End(duplicate, fd);
      continue;
    }
    if (is_tcp) {
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMilliseconds,
                 sizeof(kUserTimeoutMilliseconds));
      newcomers_[duplicate] = {fd, peer.host, clock_.Now() + patience_};
    } else {
      Deliver(duplicate, fd);
    }
  }
}

void ConnectionGate::Examine(int duplicate, Newcomer* newcomer) {
  std::array<char, kMaxPrefaceSize> bytes;
  const size_t expected = PrefaceSize(preface_);
  const ssize_t size = newcomer->phase == Phase::kBeginning
                           ? recv(newcomer->fd, bytes.data(), expected, MSG_PEEK | MSG_DONTWAIT)
                           : 0;
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < static_cast<ssize_t>(expected)) {
    return TurnAway(duplicate, *newcomer, "");  // the peer has closed; not worth a log line
  }
  if (!BeginsAs(preface_, absl::string_view(bytes.data(), size))) {
    return TurnAway(duplicate, *newcomer, Expected(preface_));
  }
  if (!Watch(duplicate, EPOLLRDHUP)) return TurnAway(duplicate, *newcomer, "");
  SetLowWater(newcomer->fd, 1);
  newcomer->phase = Phase::kWaiting;
  waiting_.push_back(duplicate);
}

void ConnectionGate::DeliverWaiting() {
  const absl::Duration now = clock_.Now();
  absl::flat_hash_set<std::string> stopped;  // hosts whose remaining connections keep waiting
  for (const int duplicate : std::exchange(waiting_, {})) {
    Newcomer& newcomer = newcomers_.at(duplicate);
    const bool open = !stopped.contains(newcomer.host) && !table_->IsBlocked(newcomer.host);
    if (open && UnreadBytes(newcomer.fd) > MaxGreetingBytes(preface_)) {
      newcomer.phase = Phase::kTarpit;
      newcomer.deadline = std::min(newcomer.deadline, now + tarpit_);
    } else if (open && rate_limiter_.Take(newcomer.host, now)) {
      Watch(duplicate, 0);  // no EPOLLRDHUP: gRPC decides when a half-closed connection ends
      Deliver(duplicate, newcomer.fd);
      newcomers_.erase(duplicate);
    } else {
      stopped.insert(newcomer.host);
      waiting_.push_back(duplicate);
    }
  }
}

void ConnectionGate::Deliver(int duplicate, int fd) {
  table_->NoteHandedOver(duplicate);
  absl::MutexLock lock(&delivery_mutex_);
  if (delivery_ == nullptr) return End(duplicate, fd);
  delivery_->Run([this, fd] { deliver_(fd); });
}

void ConnectionGate::TurnAway(int duplicate, const Newcomer& newcomer, const std::string& why) {
  if (!why.empty() && turned_away_.Allow(clock_.Now())) {
    LOG(WARNING) << "closed a connection from " << newcomer.host << ": " << why
                 << turned_away_.TakeNote();
  }
  End(duplicate, newcomer.fd);
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), duplicate), waiting_.end());
  newcomers_.erase(duplicate);
}

void ConnectionGate::End(int duplicate, int fd) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, duplicate, nullptr);
  Refuse(fd);
  table_->Remove(duplicate);
}

void ConnectionGate::TurnAwayTheLate() {
  const absl::Duration now = clock_.Now();
  std::vector<int> late;
  for (const auto& [duplicate, newcomer] : newcomers_) {
    if (newcomer.deadline <= now) late.push_back(duplicate);
  }
  for (const int duplicate : late) {
    const Newcomer& newcomer = newcomers_.at(duplicate);
    TurnAway(duplicate, newcomer, WhyLate(newcomer.phase));
  }
}

std::string ConnectionGate::WhyLate(Phase phase) const {
  switch (phase) {
    case Phase::kBeginning:
      return absl::StrCat("it sent no connection preface within ", absl::FormatDuration(patience_));
    case Phase::kWaiting:
      return absl::StrCat("too many connections from there: it was not admitted within ",
                          absl::FormatDuration(patience_));
    case Phase::kTarpit:
      break;
  }
  return "it sent too many bytes before it was answered";
}

}  // namespace pushpull
