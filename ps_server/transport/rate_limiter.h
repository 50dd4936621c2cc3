// Rate limiter for the connections that are handed to gRPC: each host may open a burst of them,
// then a fixed number per second. The limit exists because a connection that is opened and closed
// again costs gRPC about a millisecond of processor time, whatever the peer sends on it.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_RATE_LIMITER_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_RATE_LIMITER_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace pushpull {

// Not thread-safe. `now` is steady time (common/base/clock.h) and must not decrease.
class RateLimiter {
 public:
  RateLimiter(int burst, double per_second) : burst_(burst), per_second_(per_second) {}

  // Returns true, and counts the connection, if a connection from `host` may be handed over now.
  bool Take(const std::string& host, absl::Duration now);
  // Frees the entries of all hosts that may again open a whole burst.
  void Forget(absl::Duration now);
  // Returns the number of entries. For tests.
  size_t num_hosts() const { return hosts_.size(); }

 private:
  struct Host {
    double spent = 0.0;  // connections of the burst in use at `last`; decays with time
    absl::Duration last;
  };
  double SpentAt(const Host& host, absl::Duration now) const;

  const double burst_;
  const double per_second_;
  absl::flat_hash_map<std::string, Host> hosts_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_RATE_LIMITER_H_
