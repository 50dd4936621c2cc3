// Tested by tests/e2e/trace_test.py.
#include "ps_server/runtime/clock_follower.h"

#include <utility>

#include "common/wire/protocol_version.h"

namespace pushpull {
namespace {

constexpr int kFirstSamples = 5;
constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(1);

}  // namespace

ClockFollower::ClockFollower(std::unique_ptr<PsClient> coordinator, const Clock* clock,
                             ClockOffset* offset)
    : coordinator_(std::move(coordinator)), clock_(clock), offset_(offset) {
  for (int i = 0; i < kFirstSamples; ++i) Ask();
  thread_ = std::thread([this] { RunThread(); });
}

ClockFollower::~ClockFollower() {
  stop_.Raise();
  thread_.join();
}

void ClockFollower::Ask() {
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  const absl::Duration sent = clock_->Now();
  const absl::StatusOr<ps::JobReply> reply = coordinator_->GetJob(request, kTimeout);
  if (!reply.ok() || reply->server_nanoseconds() == 0) return;  // the next attempt may succeed
  offset_->AddSample(sent, clock_->Now(), absl::Nanoseconds(reply->server_nanoseconds()));
}

void ClockFollower::RunThread() {
  while (!stop_.WaitFor(kPeriod)) Ask();
}

}  // namespace pushpull
