// Declares the variables of an external model, with their initial values, to a server that does not
// know them yet; and asks a server for its variables.
#ifndef PUSHPULL_WORKER_CLIENT_DECLARE_VARIABLES_H_
#define PUSHPULL_WORKER_CLIENT_DECLARE_VARIABLES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/clock.h"
#include "common/model/variable_layout.h"
#include "worker/client/ps_session.h"

namespace pushpull {

// values[i]: the layout.num_elements(i) elements of variable i, in C order. Blocks until the server
// has variables: these, or those of another clone that was faster, which PsSession::Register
// compares. `session` must be connected.
// INVALID_ARGUMENT: a value is not finite, or the server refuses a variable.
// DEADLINE_EXCEEDED, CANCELLED: as in PsSession.
absl::Status DeclareVariables(PsSession* session, const VariableLayout& layout,
                              const float* const* values, Clock* clock);

// Returns the job's variables, with the attributes by which the server trains them. Waits until the
// job has them. Errors of PsSession::Retry.
absl::StatusOr<VariableLayout> FetchVariables(PsSession* session);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_DECLARE_VARIABLES_H_
