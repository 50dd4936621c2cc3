#include "common/trace/clock_offset.h"

#include "absl/strings/str_format.h"

namespace pushpull {

absl::Duration ClockOffset::Sample::ErrorAt(absl::Duration local) const {
  return half_round_trip + absl::AbsDuration(local - sent) * kMaxDrift;
}

void ClockOffset::AddSample(absl::Duration sent, absl::Duration received, absl::Duration remote) {
  if (received < sent) return;
  // RFC 5905, chapter 8: offset = ((T2 - T1) + (T3 - T4)) / 2, with T2 = T3 = remote.
  Sample sample;
  sample.sent = sent;
  sample.offset = ((remote - sent) + (remote - received)) / 2;
  sample.half_round_trip = (received - sent) / 2;
  absl::MutexLock lock(&mutex_);
  if (best_.has_value()) {
    const absl::Duration error = sample.ErrorAt(received);
    const absl::Duration best_error = best_->ErrorAt(received);
    const bool other_clock = absl::AbsDuration(sample.offset - best_->offset) > error + best_error;
    // The error bounds of all samples grow at the same rate, so a sample that is worse now will
    // never be the better one.
    if (error > best_error && !other_clock) return;
  }
  best_ = sample;
}

absl::Duration ClockOffset::ToRemote(absl::Duration local) const {
  absl::MutexLock lock(&mutex_);
  return best_.has_value() ? local + best_->offset : local;
}

absl::Duration ClockOffset::ErrorBound(absl::Duration local) const {
  absl::MutexLock lock(&mutex_);
  return best_.has_value() ? best_->ErrorAt(local) : absl::InfiniteDuration();
}

std::string ClockOffset::Describe(absl::Duration local) const {
  return absl::StrFormat("ahead by %.1f us, known to within %.1f us",
                         absl::ToDoubleMicroseconds(ToRemote(local) - local),
                         absl::ToDoubleMicroseconds(ErrorBound(local)));
}

}  // namespace pushpull
