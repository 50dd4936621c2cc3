// Limits how many log messages a peer can cause: a burst at once, then one message per period (a
// token bucket). The messages left out are counted, and the next allowed one says how many.
#ifndef PUSHPULL_COMMON_BASE_LOG_LIMITER_H_
#define PUSHPULL_COMMON_BASE_LOG_LIMITER_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pushpull {

// Not thread-safe.
class LogLimiter {
 public:
  LogLimiter(int burst, absl::Duration period) : burst_(burst), period_(period) {}

  // Returns whether to log a message now. `now` is steady time.
  bool Allow(absl::Duration now) {
    tokens_ = std::min<double>(burst_, tokens_ + absl::FDivDuration(now - last_, period_));
    last_ = now;
    if (tokens_ < 1.0) {
      ++left_out_;
      return false;
    }
    tokens_ -= 1.0;
    return true;
  }

  // Returns the text to append to an allowed message, "" or " (12 similar messages not logged)",
  // and resets the count.
  std::string TakeNote() {
    const int64_t left_out = std::exchange(left_out_, 0);
    return left_out == 0 ? "" : absl::StrCat(" (", left_out, " similar messages not logged)");
  }

 private:
  const int burst_;
  const absl::Duration period_;
  double tokens_ = 1e9;  // Allow caps it at burst_, so the bucket starts full
  absl::Duration last_ = absl::ZeroDuration();
  int64_t left_out_ = 0;
};

// Limits the log messages about peers that several threads serve: a burst of 5, then one message
// per 10 s. Thread-safe.
class PeerLogLimiter {
 public:
  // Returns what to append to a message (LogLimiter::TakeNote), or nullopt if it is to be left out.
  // `now` is steady time.
  std::optional<std::string> Admit(absl::Duration now) {
    absl::MutexLock lock(&mutex_);
    if (!limiter_.Allow(now)) return std::nullopt;
    return limiter_.TakeNote();
  }

 private:
  absl::Mutex mutex_;
  LogLimiter limiter_ ABSL_GUARDED_BY(mutex_){5, absl::Seconds(10)};
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_LOG_LIMITER_H_
