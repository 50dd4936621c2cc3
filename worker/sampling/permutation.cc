// Tested by tests/worker/sampling/sampler_test.cc.
#include "worker/sampling/permutation.h"

#include "glog/logging.h"

#include "common/base/random.h"

namespace pushpull {

Permutation::Permutation(uint64_t seed, uint64_t epoch, uint64_t size) : size_(size) {
  CHECK_GE(size, 1);
  half_bits_ = 1;
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  CHECK_LE(size, uint64_t{1} << (2 * half_bits_));
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  CounterRandom random(seed ^ StableHash("shuffle"), epoch);
  for (uint64_t& key : keys_) key = random.NextUint64();
}

uint64_t Permutation::operator()(uint64_t i) const {
  do {
    uint64_t left = i >> half_bits_;
    uint64_t right = i & half_mask_;
    for (const uint64_t key : keys_) {
      // The finalizer of SplitMix64, two multiply-xorshift rounds, mixes every bit of `right` and
      // of the key into the low bits, which half_mask_ keeps.
      uint64_t mixed = right ^ key;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
      mixed ^= mixed >> 31;
      const uint64_t next = left ^ (mixed & half_mask_);
      left = right;
      right = next;
    }
    i = (left << half_bits_) | right;
  } while (i >= size_);
  return i;
}

}  // namespace pushpull
