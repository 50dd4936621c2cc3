// Who a clone is, and how its session (ps_session.h) talks to the server.
#ifndef PUSHPULL_WORKER_CLIENT_PS_SESSION_OPTIONS_H_
#define PUSHPULL_WORKER_CLIENT_PS_SESSION_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

#include "common/trace/clock_offset.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/transport_security.h"
#include "protos/parameter_server.pb.h"
#include "worker/client/clone_identity.h"

namespace pushpull {

struct PsSessionOptions {
  uint32_t worker_id = 0;     // worker_index * num_clones + clone
  uint32_t num_replicas = 1;  // clones over all workers; later the server says the job's number
  std::string peer_name;      // "host:pid clone 0", for messages
  absl::Duration peer_deadline = absl::Minutes(5);  // silence after which a server is given up
  absl::Duration rpc_timeout = absl::Seconds(30);   // of one attempt; of each chunk of a pull
  uint64_t jitter_seed = 1;                         // for the pauses between attempts
  CloneIdentity identity = {};                      // session 0: a random one is drawn
  ps::Arithmetic arithmetic = {};  // of the gradients; see PsSession::set_arithmetic
  // How the server sends the weights. Others than float32 round all but the ExactElements.
  const GradientCodec* weight_codec = &Float32Codec();
  // What the clients may be used for; nullopt: nothing leaves this process.
  std::optional<TransportSecurity> security = {};
  // If not null, gets a sample of ps task 0's clock from each answer that contains it.
  ClockOffset* server_clock = nullptr;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_PS_SESSION_OPTIONS_H_
