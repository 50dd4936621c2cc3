// Tested by tests/common/wire/security/access_table_test.cc.
// Tested by tests/ps_server/transport/grpc_ps_test.cc.
#include "common/wire/grpc/byte_stream_call.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

gpr_timespec DeadlineIn(absl::Duration timeout) {
  const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN));
}

}  // namespace

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(DeadlineIn(timeout));
}

ByteStreamCall::ByteStreamCall(grpc::GenericStub* stub, const std::string& method,
                               absl::Duration timeout)
    : timeout_(timeout) {
  SetDeadline(absl::InfiniteDuration(), &context_);
  context_.set_initial_metadata_corked(true);
  stream_ = stub->PrepareCall(&context_, method, &queue_);
  stream_->StartCall(nullptr);
}

ByteStreamCall::~ByteStreamCall() {
  if (started_ && !finished_) {
    Cancel();
    Finish();
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void* ByteStreamCall::Begin(Operation operation) {
  CHECK(!pending_[operation]);
  pending_[operation] = true;
  return reinterpret_cast<void*>(static_cast<intptr_t>(operation));
}

bool ByteStreamCall::Wait(Operation operation) {
  const gpr_timespec deadline = DeadlineIn(timeout_);
  while (pending_[operation]) {
    void* tag;
    bool ok;
    // A cancelled call ends its operations at once, so the wait for them needs no deadline.
    const grpc::CompletionQueue::NextStatus next =
        queue_.AsyncNext(&tag, &ok, expired_ ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : deadline);
    if (next == grpc::CompletionQueue::TIMEOUT) {
      expired_ = true;
      Cancel();
      continue;
    }
    CHECK_EQ(next, grpc::CompletionQueue::GOT_EVENT);
    const auto done = reinterpret_cast<intptr_t>(tag);
    pending_[done] = false;
    succeeded_[done] = ok;
  }
  return succeeded_[operation];
}

bool ByteStreamCall::Write(const grpc::ByteBuffer& message, bool last) {
  CHECK(!closed_);
  if (started_ && !Wait(kWrite)) return false;
  started_ = true;
  closed_ = last;
  grpc::WriteOptions options;
  if (last) options.set_last_message();
  stream_->Write(message, options, Begin(kWrite));
  return true;
}

void ByteStreamCall::CloseWrites() {
  if (closed_) return;
  Wait(kWrite);
  started_ = true;
  closed_ = true;
  stream_->WritesDone(Begin(kWrite));
}

void ByteStreamCall::StartRead(grpc::ByteBuffer* message) { stream_->Read(message, Begin(kRead)); }

bool ByteStreamCall::WaitRead() { return Wait(kRead); }

grpc::Status ByteStreamCall::Finish() {
  CloseWrites();
  Wait(kWrite);
  grpc::Status status;
  stream_->Finish(&status, Begin(kFinish));
  Wait(kFinish);
  if (pending_[kRead]) Wait(kRead);
  finished_ = true;
  if (expired_ && status.error_code() == grpc::StatusCode::CANCELLED) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED,
            absl::StrCat("nothing was sent or received for ", absl::FormatDuration(timeout_))};
  }
  return status;
}

}  // namespace pushpull
