// Tested by tests/ps_server/monitoring/counting_handler_test.cc.
#include "ps_server/monitoring/request_counters.h"

namespace pushpull {

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
  if (step != step_) {
    // After a lower step, the server has gone back to a checkpoint, and the earlier step
    // does not count.
    if (step > step_ && step_ > 0) {
      barrier_wait_seconds_.Observe(last_commit_ - first_commit_);
    }
    step_ = step;
    first_commit_ = now;
  }
  last_commit_ = now;
}

uint64_t RequestCounters::calls(PsMethod method, absl::StatusCode code) const {
  return calls_[static_cast<int>(method)][static_cast<int>(code)].load(std::memory_order_relaxed);
}

}  // namespace pushpull
