// Tested by tests/ps_server/runtime/declaration_phase_test.cc.
#include "ps_server/runtime/declaration_handler.h"

#include <utility>

#include "glog/logging.h"

#include "ps_server/runtime/request_limits.h"

namespace pushpull {

DeclarationHandler::DeclarationHandler(ps::JobReply job, DeclarationOptions options, Clock* clock)
    : NotReadyHandler("the server waits for the variables of the external model"),
      job_(std::move(job)),
      clock_(clock),
      started_(clock->Now()),
      declaration_(std::move(options)) {}

void DeclarationHandler::SetAddresses(std::vector<std::string> addresses) {
  absl::MutexLock lock(&mutex_);
  addresses_ = std::move(addresses);
}

DeclarationHandler::State DeclarationHandler::Await(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto changed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return drained_ || declaration_.complete();
  };
  if (!changed_.Await(&mutex_, changed, patience)) return State::kWaiting;
  return declaration_.complete() ? State::kComplete : State::kDrained;
}

DeclaredVariables DeclarationHandler::Take() {
  absl::MutexLock lock(&mutex_);
  return {declaration_.layout(), declaration_.TakeValues()};
}

bool DeclarationHandler::drained() {
  absl::MutexLock lock(&mutex_);
  return drained_;
}

bool DeclarationHandler::Finish(const absl::Status& written) {
  std::vector<Waiting> waiting;
  bool drained = false;
  {
    absl::MutexLock lock(&mutex_);
    written_ = written;
    waiting.swap(waiting_);
    drained = drained_;
  }
  for (Waiting& call : waiting) {
    if (written.ok()) {
      call.done(std::move(call.reply));
    } else {
      call.done(written);
    }
  }
  return drained;
}

void DeclarationHandler::GetJob(const ps::JobRequest&, Done<ps::JobReply> done) {
  ps::JobReply reply = job_;
  {
    absl::MutexLock lock(&mutex_);
    if (addresses_.empty() || declaration_.complete()) return done(NotReady());
    for (const std::string& address : addresses_) reply.add_addresses(address);
  }
  reply.set_server_nanoseconds(absl::ToInt64Nanoseconds(clock_->Now()));
  done(std::move(reply));
}

void DeclarationHandler::GetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) {
  ps::StatusReply reply;
  reply.set_run_id(job_.run_id());
  reply.set_num_steps(job_.num_steps());
  reply.set_sync(job_.sync());
  reply.set_waiting_seconds(absl::ToDoubleSeconds(clock_->Now() - started_));
  reply.set_seconds_since_checkpoint(-1);
  {
    absl::MutexLock lock(&mutex_);
    reply.set_waiting_for(declaration_.WaitingFor());
  }
  done(std::move(reply));
}

void DeclarationHandler::DeclareVariables(const ps::DeclareRequest& request,
                                          Done<ps::DeclareReply> done) {
  if (const absl::Status limits = CheckRequestLimits(request); !limits.ok()) return done(limits);
  absl::StatusOr<ps::DeclareReply> reply;
  {
    absl::MutexLock lock(&mutex_);
    reply = declaration_.Take(request, clock_->Now());
    if (reply.ok() && declaration_.complete()) {
      reply->set_declared(true);
      if (!written_.has_value()) {
        waiting_.push_back({*std::move(reply), std::move(done)});
        changed_.NotifyAll();
        return;
      }
      if (!written_->ok()) reply = *written_;
    }
  }
  if (reply.ok() && request.variables_size() > 0 && !reply->declared()) {
    LOG(INFO) << "clone " << request.worker_id() << " (" << request.peer_name() << ") declares the "
              << request.variables_size() << " variables of the external model";
  }
  done(std::move(reply));
}

void DeclarationHandler::Drain(const ps::DrainRequest&, Done<ps::DrainReply> done) {
  {
    absl::MutexLock lock(&mutex_);
    if (written_.has_value()) return done(NotReady());
    drained_ = true;
    changed_.NotifyAll();
  }
  LOG(INFO) << "an administrator has told this server to end";
  done(ps::DrainReply());
}

}  // namespace pushpull
