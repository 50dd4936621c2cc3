#include "ps_server/core/epochs.h"

#include <algorithm>

namespace pushpull {
namespace {

// More epochs than a job begins in its lifetime.
constexpr uint64_t kMaxLead = uint64_t{1} << 20;

}  // namespace

bool IsPlausibleEpoch(uint64_t epoch, uint64_t own) {
  if (epoch > kMaxEpoch) return false;
  return own == 0 || epoch <= own + kMaxLead;
}

absl::Duration EpochPace::NextPause(absl::Duration now) {
  const bool held = serving_since_.has_value() && now - *serving_since_ >= options_.held;
  serving_since_.reset();
  in_a_row_ = held ? 1 : in_a_row_ + 1;
  if (in_a_row_ < 3) return absl::ZeroDuration();
  constexpr int kMaxDoublings = 30;
  const int doublings = std::min(in_a_row_ - 3, kMaxDoublings);
  return std::min(options_.first_pause * (1 << doublings), options_.last_pause);
}

}  // namespace pushpull
