// The time for which a silent clone keeps its replicas, unless `ps_server --lease` sets another
// one. Register's reply tells the clones.
#ifndef PUSHPULL_COMMON_WIRE_DEFAULT_LEASE_H_
#define PUSHPULL_COMMON_WIRE_DEFAULT_LEASE_H_

#include "absl/time/time.h"

namespace pushpull {

inline constexpr absl::Duration kDefaultLease = absl::Seconds(10);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_DEFAULT_LEASE_H_
