// Tested by tests/common/wire/batch_division_test.cc.
#include "common/wire/batch_division.h"

#include <algorithm>
#include <numeric>

#include "glog/logging.h"

namespace pushpull {

std::vector<int64_t> DivideEqually(int64_t batch_size, int num_replicas) {
  CHECK_GE(num_replicas, 1);
  CHECK_GE(batch_size, num_replicas);
  std::vector<int64_t> samples(num_replicas, batch_size / num_replicas);
  const int64_t remainder = batch_size % num_replicas;
  for (int64_t i = num_replicas - remainder; i < num_replicas; ++i) ++samples[i];
  return samples;
}

// Beginning with one sample each, giving every further sample to the replica that then takes the
// least time is optimal: the slowest time cannot fall by moving a sample. The loops reach the same
// point from the quotas, which are less than one sample per replica away from it.
std::vector<int64_t> DivideBySpeed(int64_t batch_size, absl::Span<const double> speeds) {
  const int n = static_cast<int>(speeds.size());
  CHECK_GE(n, 1);
  CHECK_GE(batch_size, n);
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  CHECK_GT(*std::min_element(speeds.begin(), speeds.end()), 0.0);
  std::vector<int64_t> samples(n);
  int64_t left = batch_size;
  for (int i = 0; i < n; ++i) {
    const double quota = static_cast<double>(batch_size) * (speeds[i] / sum);
    samples[i] = std::clamp<int64_t>(static_cast<int64_t>(quota), 1, batch_size);
    left -= samples[i];
  }
  const auto time_with = [&](int i, int64_t more) {
    return static_cast<double>(samples[i] + more) / speeds[i];
  };
  for (; left > 0; --left) {
    int best = 0;
    for (int i = 1; i < n; ++i) {
      if (time_with(i, 1) < time_with(best, 1)) best = i;
    }
    ++samples[best];
  }
  for (; left < 0; ++left) {
    int slowest = -1;
    for (int i = 0; i < n; ++i) {
      if (samples[i] == 1) continue;
      if (slowest < 0 || time_with(i, 0) > time_with(slowest, 0)) slowest = i;
    }
    --samples[slowest];
  }
  return samples;
}

double SlowestSeconds(absl::Span<const int64_t> samples, absl::Span<const double> speeds) {
  CHECK_EQ(samples.size(), speeds.size());
  double slowest = 0.0;
  for (size_t i = 0; i < samples.size(); ++i) {
    slowest = std::max(slowest, static_cast<double>(samples[i]) / speeds[i]);
  }
  return slowest;
}

BatchPart PartOf(absl::Span<const int64_t> samples, int replica) {
  CHECK_GE(replica, 0);
  CHECK_LT(replica, static_cast<int>(samples.size()));
  const int64_t first =
      std::accumulate(samples.begin(), samples.begin() + replica, static_cast<int64_t>(0));
  return {first, samples[replica]};
}

}  // namespace pushpull
