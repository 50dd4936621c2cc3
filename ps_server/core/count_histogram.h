// A histogram of small counts: contributors of a step, staleness of a push. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_COUNT_HISTOGRAM_H_
#define PUSHPULL_PS_SERVER_CORE_COUNT_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "protos/parameter_server.pb.h"

namespace pushpull {

class CountHistogram {
 public:
  void Add(uint64_t value);
  ps::Histogram ToProto() const;

 private:
  // Upper bounds of the buckets. Up to 6, where most values are, each value has its own bucket.
  static constexpr std::array<uint64_t, 15> kBounds = {0,  1,  2,  3,  4,  5,  6,  8,
                                                       12, 16, 24, 32, 48, 64, 128};

  std::array<uint64_t, kBounds.size() + 1> counts_ = {};
  uint64_t sum_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COUNT_HISTOGRAM_H_
