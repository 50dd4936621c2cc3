// By what the server knows a clone, from one process of it to the next. The supervisor draws it and
// hands it to each process it starts, over a socket that nobody else has: a command line can be
// read by every user of the machine.
#ifndef PUSHPULL_WORKER_TRAIN_CLONE_IDENTITY_H_
#define PUSHPULL_WORKER_TRAIN_CLONE_IDENTITY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pushpull {

struct CloneIdentity {
  uint64_t session = 0;         // RegisterRequest.session
  uint64_t process_number = 0;  // RegisterRequest.process_number
};

// A number that nobody can guess, and not 0.
uint64_t NewSession();

// Never blocks: the socket is empty before.
absl::Status SendCloneIdentity(int socket, const CloneIdentity& identity);
// Blocks until the identity is there. FAILED_PRECONDITION: the descriptor is not the supervisor's
// socket.
absl::StatusOr<CloneIdentity> ReceiveCloneIdentity(int socket);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_CLONE_IDENTITY_H_
