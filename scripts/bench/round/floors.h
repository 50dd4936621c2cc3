// Lower bounds of the machine: the time to move the same bytes without anything else.
#ifndef PUSHPULL_SCRIPTS_BENCH_ROUND_FLOORS_H_
#define PUSHPULL_SCRIPTS_BENCH_ROUND_FLOORS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace pushpull {

// Median time of memcpy with one thread, over buffers of that size that do not fit a small cache.
absl::Duration MeasureMemcpy(int64_t size_bytes, int rounds);

enum class SocketKind { kTcp, kUnix };

// Median time of a round with plain sockets: `clones` processes each send size_bytes to a server
// with a thread per connection, which replies to all of them with size_bytes once the last byte has
// arrived. It forks, so call it before the process has other threads.
absl::StatusOr<absl::Duration> MeasureSocketRound(SocketKind kind, int clones, int64_t size_bytes,
                                                  int rounds);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_ROUND_FLOORS_H_
