// PsClient over gRPC. Push and Pull transfer chunks as raw slices (chunk_message.h). The calling
// thread drives its call; the client has no threads.
//
// A call without a connection first waits for one, up to a second (less if its timeout is shorter);
// its timeout starts after that. If no attempt to connect has failed yet, the wait ends with the
// first failure. Otherwise it goes on through further failures, for the whole second. While the
// server cannot be reached, calls fail with UNAVAILABLE. The caller decides how often and how long
// to retry (common/base/backoff.h).
#ifndef PUSHPULL_COMMON_WIRE_GRPC_GRPC_PS_CLIENT_H_
#define PUSHPULL_COMMON_WIRE_GRPC_GRPC_PS_CLIENT_H_

#include <memory>
#include <string>

#include "common/wire/grpc/channel_options.h"
#include "common/wire/ps_client.h"

namespace pushpull {

// address: "host:port" or "unix:/path". Never fails; with a bad address the calls return
// UNAVAILABLE. Clients do not share connections. The client's push streams must be destroyed before
// the client.
std::unique_ptr<PsClient> MakeGrpcPsClient(const std::string& address,
                                           const TransportOptions& options = {});

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_GRPC_PS_CLIENT_H_
