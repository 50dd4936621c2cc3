#include "ps_server/transport/rate_limiter.h"

#include <algorithm>

namespace pushpull {

double RateLimiter::SpentAt(const Host& host, absl::Duration now) const {
  return std::max(0.0, host.spent - per_second_ * absl::ToDoubleSeconds(now - host.last));
}

bool RateLimiter::Take(const std::string& host, absl::Duration now) {
  Host& entry = hosts_[host];
  entry.spent = SpentAt(entry, now);
  entry.last = now;
  if (entry.spent + 1 > burst_) return false;
  entry.spent += 1;
  return true;
}

void RateLimiter::Forget(absl::Duration now) {
  absl::erase_if(hosts_, [&](const auto& host) { return SpentAt(host.second, now) <= 0.0; });
}

}  // namespace pushpull
