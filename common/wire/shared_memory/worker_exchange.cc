#include "common/wire/shared_memory/worker_exchange.h"

#include <utility>

#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {

std::shared_ptr<ChunkExchange> WorkerExchange::ForPull(const ps::PullRequest& pull, OpenFn open) {
  if (!wanted_ || host_.empty() || !pull.has_grant()) return nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (asked_.has_value() && asked_->epoch == pull.epoch() &&
        (exchange_ != nullptr || asked_->grant == pull.grant().grant())) {
      return exchange_;
    }
    asked_ = {.epoch = pull.epoch(), .grant = pull.grant().grant()};
    exchange_ = nullptr;
  }
  ps::OpenSharedMemoryRequest request;
  request.set_run_id(pull.run_id());
  request.set_epoch(pull.epoch());
  request.set_worker_id(pull.worker_id());
  *request.mutable_grant() = pull.grant();
  request.set_host(host_);
  const auto attached = [&]() -> absl::StatusOr<std::shared_ptr<ChunkExchange>> {
    PP_ASSIGN_OR_RETURN(const ps::OpenSharedMemoryReply reply, open(request));
    return ChunkExchange::Attach(reply);
  }();
  absl::MutexLock lock(&mutex_);
  if (absl::IsUnavailable(attached.status())) {
    asked_.reset();  // the pull that follows reports the failure
    return nullptr;
  }
  if (!attached.ok()) {
    LOG(INFO) << "chunks to and from " << address_
              << " go through the connection: " << attached.status().message();
    return nullptr;
  }
  LOG(INFO) << "chunks to and from " << address_ << " go through shared memory";
  return exchange_ = *attached;
}

std::shared_ptr<ChunkExchange> WorkerExchange::current() const {
  absl::MutexLock lock(&mutex_);
  return exchange_;
}

void WorkerExchange::Drop(uint64_t token) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ != nullptr && exchange_->token() == token) exchange_ = nullptr;
}

}  // namespace pushpull
