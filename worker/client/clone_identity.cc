// Tested by tests/worker/train/supervisor_test.cc.
#include "worker/client/clone_identity.h"

#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace pushpull {

uint64_t NewSession() {
  uint64_t session = 0;
  while (session == 0) {
    // getrandom returns up to 256 bytes in full once the kernel's generator is seeded; before that,
    // a signal may interrupt it.
    if (getrandom(&session, sizeof(session), 0) != sizeof(session)) session = 0;
  }
  return session;
}

std::string HostName() {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return host;
}

std::string ClonePeerName(uint32_t clone) {
  return absl::StrCat(HostName(), ":", getpid(), " clone ", clone);
}

absl::Status SendCloneIdentity(int socket, const CloneIdentity& identity) {
  const ssize_t sent = send(socket, &identity, sizeof(identity), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == sizeof(identity)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the clone's identity could not be sent: ", strerror(errno)));
}

absl::StatusOr<CloneIdentity> ReceiveCloneIdentity(int socket) {
  CloneIdentity identity;
  ssize_t received;
  do {
    received = recv(socket, &identity, sizeof(identity), MSG_WAITALL);
  } while (received < 0 && errno == EINTR);
  if (received == sizeof(identity)) return identity;
  return absl::FailedPreconditionError(
      absl::StrCat("descriptor ", socket, " does not tell who this clone is",
                   received < 0 ? absl::StrCat(" (", strerror(errno), ")") : "",
                   "; --clone_index is for the supervisor, start the worker without it"));
}

}  // namespace pushpull
