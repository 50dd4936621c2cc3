// The gRPC channel of a client to one server.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_PEER_CHANNEL_H_
#define PUSHPULL_COMMON_WIRE_GRPC_PEER_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/wire/grpc/channel_options.h"
#include "protos/parameter_server.grpc.pb.h"

namespace pushpull {

// What calls are made with. It must outlive the calls.
struct PeerStubs {
  explicit PeerStubs(std::shared_ptr<grpc::Channel> to_server);

  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<ps::ParameterServer::Stub> typed;
  grpc::GenericStub raw;
};

// A channel that finds its server again after the name of the server's host has got another
// address, as that of a pod does which starts again.
//
// gRPC looks a name up again 30 s after the last time, and after failures in intervals that grow to
// two minutes, which no argument shortens. A new channel looks it up at once. So a channel to a
// name that has had no connection for TransportOptions::renew_channel_after is replaced. Calls in
// flight keep the old one. Thread-safe.
class PeerChannel {
 public:
  PeerChannel(std::string address, const TransportOptions& options);

  // Returns the stubs for one call, after waiting for a connection for at most a second, or for
  // `timeout` if that is shorter. gRPC works on an attempt to connect only while a thread waits for
  // it here, otherwise every five seconds, and a call that finds that the last attempt failed fails
  // at once. So if the last attempt has failed, this function waits for the next ones. If the first
  // attempt fails while it waits, it returns and the call reports that failure.
  std::shared_ptr<PeerStubs> Await(absl::Duration timeout);

 private:
  std::shared_ptr<PeerStubs> Connect() const;
  // Returns the present stubs, or new ones if it is time to look up the name again.
  std::shared_ptr<PeerStubs> Renewed();

  const std::string address_;
  const TransportOptions options_;
  const bool named_;  // the address has a name that is looked up
  SteadyClock clock_;
  absl::Mutex mutex_;
  std::shared_ptr<PeerStubs> stubs_ ABSL_GUARDED_BY(mutex_);
  // When the channel was first seen after a failed attempt to connect, by clock_; infinite if it
  // has had a connection since, or none has failed.
  absl::Duration failing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_PEER_CHANNEL_H_
