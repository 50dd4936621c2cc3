// PsClient over gRPC. Push and Pull move chunks as raw slices (chunk_codec.h); a thread that calls
// drives its own call, no other thread of ours takes part.
//
// A call that finds no connection waits up to a second for one, but not past the first failed
// attempt to connect. While the server cannot be reached, calls fail with UNAVAILABLE; the caller
// decides how often and how long to try again (common/backoff.h).
#ifndef PUSHPULL_COMMON_RPC_GRPC_PS_CLIENT_H_
#define PUSHPULL_COMMON_RPC_GRPC_PS_CLIENT_H_

#include <memory>
#include <string>

#include "common/ps_client.h"
#include "common/rpc/channel_options.h"

namespace pushpull {

// address: "host:port" or "unix:/path". Never fails: a bad address shows as UNAVAILABLE in the
// calls. Each client has a connection of its own. Streams must be destroyed before the client.
std::unique_ptr<PsClient> MakeGrpcPsClient(const std::string& address,
                                           const TransportOptions& options = {});

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_GRPC_PS_CLIENT_H_
