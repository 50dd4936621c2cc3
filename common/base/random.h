// Counter-based random numbers: each draw is a pure function of (seed, stream, counter), so any
// worker can compute the draws of any replica, and a resumed run sees the same ones. Uses Philox
// 4x32-10 (Salmon et al., SC'11).
#ifndef PUSHPULL_COMMON_BASE_RANDOM_H_
#define PUSHPULL_COMMON_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace pushpull {

// Returns four independent uniform 32-bit words for `counter` under `key`.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Returns a 64-bit hash of a name (FNV-1a) that is the same in every process. It gives each
// variable or purpose a separate stream.
uint64_t StableHash(absl::string_view name);

// The sequence of draws of one (seed, stream). A copyable value; not thread-safe.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream);

  uint32_t NextUint32();
  uint64_t NextUint64();
  // Uniform in [0, 1), with 24 random bits.
  float NextFloat();
  // Uniform in [0, bound); bound > 0.
  uint64_t NextBelow(uint64_t bound);
  // Standard normal (Box-Muller). Consumes two words.
  double NextNormal();

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;  // words of block_ that are handed out
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_RANDOM_H_
