// The secret by which the server recognises a clone across restarts of its process. The supervisor
// draws it and sends it to each process that it starts, through a socket that only the two share:
// every user of the machine could read it on a command line. All functions are thread-safe.
#ifndef PUSHPULL_WORKER_CLIENT_CLONE_IDENTITY_H_
#define PUSHPULL_WORKER_CLIENT_CLONE_IDENTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

struct CloneIdentity {
  uint64_t session = 0;         // RegisterRequest.session
  uint64_t process_number = 0;  // RegisterRequest.process_number
};

// Draws a number from the kernel's random generator; never 0. Blocks only while the machine has
// just booted and the generator is not seeded.
uint64_t NewSession();

// Returns the name of this machine; "localhost" if the system does not tell.
std::string HostName();

// Returns what messages call a clone of this process: "host:1234 clone 0".
std::string ClonePeerName(uint32_t clone);

// Sends the identity to a process that has just been given the other end of `socket`. Never blocks,
// because nothing has been sent on the socket before. INTERNAL: the socket refused it.
absl::Status SendCloneIdentity(int socket, const CloneIdentity& identity);
// Receives the identity. Blocks until it arrives or the other end is closed. FAILED_PRECONDITION:
// `socket` is not a socket from the supervisor.
absl::StatusOr<CloneIdentity> ReceiveCloneIdentity(int socket);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_CLONE_IDENTITY_H_
