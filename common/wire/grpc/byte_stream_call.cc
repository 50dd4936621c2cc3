// Tested by tests/common/wire/security/access_table_test.cc.
// Tested by tests/ps_server/transport/grpc_ps_test.cc.
#include "common/wire/grpc/byte_stream_call.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

namespace pushpull {

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24));
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN)));
}

ByteStreamCall::ByteStreamCall(grpc::GenericStub* stub, const std::string& method,
                               absl::Duration timeout) {
  SetDeadline(timeout, &context_);
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
  while (pending_[operation]) {
    void* tag;
    bool ok;
    CHECK(queue_.Next(&tag, &ok));
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
  return status;
}

}  // namespace pushpull
