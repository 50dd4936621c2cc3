// RequestCounters counts the requests to one ps task: calls by method and status code, bytes,
// durations.
#ifndef PUSHPULL_PS_SERVER_MONITORING_REQUEST_COUNTERS_H_
#define PUSHPULL_PS_SERVER_MONITORING_REQUEST_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/wire/methods.h"
#include "ps_server/monitoring/latency_histogram.h"

namespace pushpull {

// Thread-safe. Counting costs an atomic addition. Only NoteContribution, which is called once
// per contribution, takes a lock.
class RequestCounters {
 public:
  static constexpr int kNumCodes = 17;  // values of absl::StatusCode

  // now: returns steady time. It is called until the last bytes of the last pull are released,
  // which may be after the server has stopped.
  explicit RequestCounters(std::function<absl::Duration()> now) : now_(std::move(now)) {}

  absl::Duration Now() const { return now_(); }

  void CountCall(PsMethod method, absl::StatusCode code);
  void CountPushedBytes(uint64_t bytes) {
    pushed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // A pull has been answered with `version`; bytes: of all its chunks, encoded as it asked for.
  void CountPull(uint64_t version, uint64_t bytes);
  void ObservePush(absl::Duration answered_after) { push_seconds_.Observe(answered_after); }
  void ObservePullWait(absl::Duration wait) { pull_wait_seconds_.Observe(wait); }
  void ObservePull(absl::Duration whole) { pull_seconds_.Observe(whole); }
  // A contribution to `step` has been committed. When the first contribution to a later step
  // comes, the time between the first and the last contribution to the earlier step is added
  // to barrier_wait_seconds. Meaningful in sync mode only.
  void NoteContribution(uint64_t step) ABSL_LOCKS_EXCLUDED(mutex_);

  uint64_t calls(PsMethod method, absl::StatusCode code) const;
  uint64_t pushed_bytes() const { return pushed_bytes_.load(std::memory_order_relaxed); }
  uint64_t pulled_bytes() const { return pulled_bytes_.load(std::memory_order_relaxed); }
  // Version of the last pull that was answered.
  uint64_t pulled_version() const { return pulled_version_.load(std::memory_order_relaxed); }
  HistogramValues push_seconds() const { return push_seconds_.Values(); }
  HistogramValues pull_wait_seconds() const { return pull_wait_seconds_.Values(); }
  HistogramValues pull_seconds() const { return pull_seconds_.Values(); }
  HistogramValues barrier_wait_seconds() const { return barrier_wait_seconds_.Values(); }

 private:
  const std::function<absl::Duration()> now_;
  std::array<std::array<std::atomic<uint64_t>, kNumCodes>, kNumPsMethods> calls_{};
  std::atomic<uint64_t> pushed_bytes_{0};
  std::atomic<uint64_t> pulled_bytes_{0};
  std::atomic<uint64_t> pulled_version_{0};
  LatencyHistogram push_seconds_;
  LatencyHistogram pull_wait_seconds_;
  LatencyHistogram pull_seconds_;
  LatencyHistogram barrier_wait_seconds_;

  absl::Mutex mutex_;
  // The step of the newest contribution, 0 before the first one, and its first and last commit.
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration first_commit_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_commit_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_REQUEST_COUNTERS_H_
