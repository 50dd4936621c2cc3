// A pseudo-random permutation of [0, size) in O(1) memory.
//
// It is a Feistel network on [0, 4^k) with the smallest k >= 1 for which 4^k >= size. The network
// is applied again until the value is below size (cycle walking). That takes at most four
// applications on average.
#ifndef PUSHPULL_WORKER_SAMPLING_PERMUTATION_H_
#define PUSHPULL_WORKER_SAMPLING_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace pushpull {

// Immutable value; thread-safe.
class Permutation {
 public:
  // Each (seed, epoch) gives a different permutation. CHECKs that 1 <= size <= 2^62.
  Permutation(uint64_t seed, uint64_t epoch, uint64_t size);

  // Returns the value that i maps to; 0 <= i < size.
  uint64_t operator()(uint64_t i) const;

 private:
  static constexpr int kRounds = 6;

  uint64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_SAMPLING_PERMUTATION_H_
