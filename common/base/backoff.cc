#include "common/base/backoff.h"

#include <algorithm>

namespace pushpull {

Backoff::Backoff(const Options& options, uint64_t seed)
    : options_(options), nominal_(options.initial), random_(seed, StableHash("backoff")) {}

absl::Duration Backoff::Next() {
  const double factor = 1 - options_.jitter + 2 * options_.jitter * random_.NextFloat();
  const absl::Duration delay = nominal_ * factor;
  nominal_ = std::min(nominal_ * options_.multiplier, options_.maximum);
  return delay;
}

void Backoff::Reset() { nominal_ = options_.initial; }

}  // namespace pushpull
