// Tested by tests/ps_server/monitoring/counting_handler_test.cc.
#include "ps_server/monitoring/request_counters.h"

#include "glog/logging.h"

namespace pushpull {

absl::string_view PsMethodName(PsMethod method) {
  switch (method) {
    case PsMethod::kGetJob:
      return "GetJob";
    case PsMethod::kRegister:
      return "Register";
    case PsMethod::kHeartbeat:
      return "Heartbeat";
    case PsMethod::kCommit:
      return "Commit";
    case PsMethod::kGetStatus:
      return "GetStatus";
    case PsMethod::kCheckpoint:
      return "Checkpoint";
    case PsMethod::kDrain:
      return "Drain";
    case PsMethod::kEvict:
      return "Evict";
    case PsMethod::kPush:
      return "Push";
    case PsMethod::kPull:
      return "Pull";
    case PsMethod::kOpenSharedMemory:
      return "OpenSharedMemory";
    case PsMethod::kGetShardState:
      return "GetShardState";
    case PsMethod::kRestore:
      return "Restore";
    case PsMethod::kMeasureNorm:
      return "MeasureNorm";
    case PsMethod::kApply:
      return "Apply";
    case PsMethod::kSnapshot:
      return "Snapshot";
    case PsMethod::kEndTask:
      return "EndTask";
  }
  LOG(FATAL) << "method " << static_cast<int>(method);
}

void RequestCounters::CountCall(PsMethod method, absl::StatusCode code) {
  auto number = static_cast<int>(code);
  if (number < 0 || number >= kNumCodes) number = static_cast<int>(absl::StatusCode::kUnknown);
  calls_[static_cast<int>(method)][number].fetch_add(1, std::memory_order_relaxed);
}

void RequestCounters::CountPull(uint64_t version, uint64_t bytes) {
  pulled_version_.store(version, std::memory_order_relaxed);
  pulled_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void RequestCounters::NoteContribution(uint64_t step) {
  const absl::Duration now = now_();
  absl::MutexLock lock(&mutex_);
  if (step != round_step_) {
    // After a lower step, the server has gone back to a checkpoint, and the earlier round
    // does not count.
    if (step > round_step_ && round_step_ > 0) {
      round_wait_seconds_.Observe(round_last_ - round_first_);
    }
    round_step_ = step;
    round_first_ = now;
  }
  round_last_ = now;
}

uint64_t RequestCounters::calls(PsMethod method, absl::StatusCode code) const {
  return calls_[static_cast<int>(method)][static_cast<int>(code)].load(std::memory_order_relaxed);
}

}  // namespace pushpull
