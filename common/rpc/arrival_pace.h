// How fast connections from one host may go on to gRPC: a burst, then so many a second. One that
// comes and goes, whatever it says, costs a millisecond of processor time.
#ifndef PUSHPULL_COMMON_RPC_ARRIVAL_PACE_H_
#define PUSHPULL_COMMON_RPC_ARRIVAL_PACE_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace pushpull {

// Not thread-safe. Times are steady ones.
class ArrivalPace {
 public:
  ArrivalPace(int burst, double per_second) : burst_(burst), per_second_(per_second) {}

  // True: one from `host` may go on now, and is counted.
  bool Take(const std::string& host, absl::Duration now);
  // Forgets the hosts that have their whole burst again.
  void Forget(absl::Duration now);
  size_t num_hosts() const { return hosts_.size(); }

 private:
  struct Host {
    double spent = 0.0;  // of the burst, as of `last`
    absl::Duration last;
  };
  double SpentAt(const Host& host, absl::Duration now) const;

  const double burst_;
  const double per_second_;
  absl::flat_hash_map<std::string, Host> hosts_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_ARRIVAL_PACE_H_
