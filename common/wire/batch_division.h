// How the global batch of a synchronous step is divided over the replicas. The server divides it
// and tells each clone its part; both sides number the samples of a batch from 0.
//
// Thread rule: pure functions.
#ifndef PUSHPULL_COMMON_WIRE_BATCH_DIVISION_H_
#define PUSHPULL_COMMON_WIRE_BATCH_DIVISION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace pushpull {

// The samples [first, first + samples) of a global batch.
struct BatchPart {
  int64_t first = 0;
  int64_t samples = 0;  // 0: no part is known

  friend bool operator==(const BatchPart&, const BatchPart&) = default;
};

// Returns the number of samples of each replica: floor(batch_size / num_replicas), and one more for
// the last batch_size mod num_replicas of them. CHECKs that 1 <= num_replicas <= batch_size.
std::vector<int64_t> DivideEqually(int64_t batch_size, int num_replicas);

// Returns the numbers n_i >= 1 with the sum `batch_size` for which the slowest replica takes the
// least time, max(n_i / speeds_i). `speeds`: samples per second of each replica, above 0; only
// their ratios count. Equal arguments give equal numbers. CHECKs that there are 1 to `batch_size`
// speeds.
std::vector<int64_t> DivideBySpeed(int64_t batch_size, absl::Span<const double> speeds);

// Returns the time that a step takes with these numbers, max(samples_i / speeds_i), in seconds.
// CHECKs that there are as many numbers as speeds.
double SlowestSeconds(absl::Span<const int64_t> samples, absl::Span<const double> speeds);

// Returns the part of `replica` (< samples.size()). Replica 0 has the first samples, replica 1 the
// next, and so on.
BatchPart PartOf(absl::Span<const int64_t> samples, int replica);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_BATCH_DIVISION_H_
