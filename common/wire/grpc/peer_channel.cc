// Tested by tests/common/wire/grpc/peer_channel_test.cc.
#include "common/wire/grpc/peer_channel.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <utility>

#include "common/wire/security/transport_credentials.h"
#include "common/wire/transport_security.h"

namespace pushpull {

PeerStubs::PeerStubs(std::shared_ptr<grpc::Channel> to_server)
    : channel(std::move(to_server)), typed(ps::ParameterServer::NewStub(channel)), raw(channel) {}

PeerChannel::PeerChannel(std::string address, const TransportOptions& options)
    : address_(std::move(address)),
      options_(options),
      named_(HasHostName(address_)),
      stubs_(Connect()) {}

std::shared_ptr<PeerStubs> PeerChannel::Connect() const {
  return std::make_shared<PeerStubs>(grpc::CreateCustomChannel(
      address_,
      options_.credentials == nullptr ? grpc::InsecureChannelCredentials()
                                      : options_.credentials->ForChannel(address_),
      ClientChannelArguments(options_)));
}

std::shared_ptr<PeerStubs> PeerChannel::Renewed() {
  absl::MutexLock lock(&mutex_);
  const grpc_connectivity_state state = stubs_->channel->GetState(/*try_to_connect=*/false);
  if (!named_ || state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_IDLE) {
    failing_since_ = absl::InfiniteDuration();
  } else if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    failing_since_ = std::min(failing_since_, clock_.Now());
    if (clock_.Now() - failing_since_ >= options_.renew_channel_after) {
      stubs_ = Connect();
      failing_since_ = absl::InfiniteDuration();
    }
  }
  return stubs_;
}

std::shared_ptr<PeerStubs> PeerChannel::Await(absl::Duration timeout) {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  std::shared_ptr<PeerStubs> stubs = Renewed();
  grpc::Channel& channel = *stubs->channel;
  const gpr_timespec deadline = gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(std::min(timeout, kPatience)), GPR_TIMESPAN));
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  const bool has_failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
  while (state != GRPC_CHANNEL_READY && channel.WaitForStateChange(state, deadline)) {
    state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && !has_failed) break;
  }
  return stubs;
}

}  // namespace pushpull
