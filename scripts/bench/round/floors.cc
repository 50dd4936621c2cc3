#include "scripts/bench/round/floors.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "scripts/bench/median.h"

namespace pushpull {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

absl::Duration Now() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

bool SendAll(int fd, const char* data, int64_t size_bytes) {
  while (size_bytes > 0) {
    const ssize_t n = send(fd, data, std::min<int64_t>(size_bytes, kPieceBytes), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size_bytes -= n;
  }
  return true;
}

bool ReceiveAll(int fd, char* data, int64_t size_bytes) {
  while (size_bytes > 0) {
    const ssize_t n = recv(fd, data, std::min<int64_t>(size_bytes, kPieceBytes), 0);
    if (n <= 0) return false;
    data += n;
    size_bytes -= n;
  }
  return true;
}

// Opens a listening socket at an address that the kernel chooses.
int Listen(SocketKind kind, sockaddr_storage* address, socklen_t* length) {
  const int family = kind == SocketKind::kTcp ? AF_INET : AF_UNIX;
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *address = {};
  address->ss_family = family;
  if (kind == SocketKind::kTcp) {
    reinterpret_cast<sockaddr_in*>(address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *length = sizeof(sockaddr_in);
  } else {
    *length = sizeof(sa_family_t);  // the kernel chooses an abstract name
  }
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(address), *length) != 0 ||
      listen(fd, 16) != 0) {
    return -1;
  }
  *length = sizeof(*address);
  getsockname(fd, reinterpret_cast<sockaddr*>(address), length);
  return fd;
}

[[noreturn]] void RunClone(const sockaddr_storage& address, socklen_t length, int64_t size_bytes,
                           int rounds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = socket(address.ss_family, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) _exit(1);
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  std::vector<char> gradient(size_bytes, 1), weights(size_bytes);
  for (int i = 0; i < rounds; ++i) {
    if (!SendAll(fd, gradient.data(), size_bytes)) _exit(1);
    if (!ReceiveAll(fd, weights.data(), size_bytes)) _exit(1);
  }
  _exit(0);
}

}  // namespace

absl::Duration MeasureMemcpy(int64_t size_bytes, int rounds) {
  std::vector<char> from(size_bytes, 1), to(size_bytes, 2);
  std::vector<absl::Duration> times;
  for (int i = 0; i < rounds; ++i) {
    const absl::Duration begin = Now();
    std::memcpy(to.data(), from.data(), size_bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    times.push_back(Now() - begin);
    std::swap(from, to);
  }
  return Median(times);
}

absl::StatusOr<absl::Duration> MeasureSocketRound(SocketKind kind, int clones, int64_t size_bytes,
                                                  int rounds) {
  sockaddr_storage address;
  socklen_t length;
  const int listener = Listen(kind, &address, &length);
  if (listener < 0) return absl::ErrnoToStatus(errno, "cannot listen for the socket floor");
  std::vector<pid_t> children;
  for (int i = 0; i < clones; ++i) {
    const pid_t pid = fork();
    if (pid == 0) RunClone(address, length, size_bytes, rounds);
    children.push_back(pid);
  }
  const std::vector<char> weights(size_bytes, 3);
  std::vector<absl::Duration> ends;
  std::barrier arrived(clones, [&ends]() noexcept { ends.push_back(Now()); });
  std::vector<std::thread> threads;
  std::vector<char> good(clones, 1);
  for (int i = 0; i < clones; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    threads.emplace_back([&, fd, i] {
      std::vector<char> gradient(size_bytes);
      for (int round = 0; round < rounds; ++round) {
        good[i] = good[i] && ReceiveAll(fd, gradient.data(), size_bytes);
        arrived.arrive_and_wait();
        good[i] = good[i] && SendAll(fd, weights.data(), size_bytes);
      }
      close(fd);
    });
  }
  for (auto& thread : threads) thread.join();
  close(listener);
  for (const pid_t pid : children) waitpid(pid, nullptr, 0);
  if (std::count(good.begin(), good.end(), 0) > 0) {
    return absl::UnavailableError("a connection of the socket floor broke");
  }
  std::vector<absl::Duration> times;
  for (size_t i = 1; i < ends.size(); ++i) times.push_back(ends[i] - ends[i - 1]);
  return Median(times);
}

}  // namespace pushpull
