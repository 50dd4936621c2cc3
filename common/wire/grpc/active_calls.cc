// Tested by tests/worker/client/grpc/client_failures_test.cc.
#include "common/wire/grpc/active_calls.h"

namespace pushpull {

ActiveCalls::Entry::Entry(ActiveCalls* calls, grpc::ClientContext* context)
    : calls_(calls), context_(context) {
  absl::MutexLock lock(&calls_->mutex_);
  calls_->contexts_.insert(context_);
  if (calls_->cancelled_) context_->TryCancel();
}

ActiveCalls::Entry::~Entry() {
  absl::MutexLock lock(&calls_->mutex_);
  calls_->contexts_.erase(context_);
}

void ActiveCalls::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* const context : contexts_) context->TryCancel();
}

}  // namespace pushpull
